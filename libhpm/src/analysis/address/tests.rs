use super::*;

/// Where each register points, so that an address says which registers it is made of.
fn registers() -> Registers {
    let mut all = Registers([0; Registers::COUNT]);
    for (place, value) in all.0.iter_mut().enumerate().skip(2) {
        *value = 0x10_0000 * place as u64;
    }
    all
}

const RAX: u64 = 0x20_0000;
const RBX: u64 = 0x30_0000;
const RCX: u64 = 0x40_0000;
const RSI: u64 = 0x60_0000;
const RDI: u64 = 0x70_0000;
const RBP: u64 = 0x80_0000;
const RSP: u64 = 0x90_0000;

const IP: u64 = 0x1000;

fn with(code: &[u8], after: &Registers, wanted: Access) -> Result<u64, Unknown> {
    let length = Decoder::with_ip(64, code, IP, DecoderOptions::NONE).decode().len() as u64;
    Executed { code, ip: IP, bits: 64, next_ip: IP + length, after }.data_address(wanted)
}

fn address(code: &[u8], wanted: Access) -> Result<u64, Unknown> {
    with(code, &registers(), wanted)
}

fn load(code: &[u8]) -> Result<u64, Unknown> {
    address(code, Access::Load)
}

#[test]
fn events_say_which_access_they_are_about() {
    let of = Access::of_event;
    assert_eq!(
        [of("l1d-load-miss"), of("MEM_INST_RETIRED.ALL_STORES"), of("instructions"), of("load-store")],
        [Access::Load, Access::Store, Access::Any, Access::Any]
    );
}

#[test]
fn base_index_scale_and_displacement() {
    // mov edx, [rax + 4*rcx + 12]
    assert_eq!(load(&[0x8b, 0x54, 0x88, 0x0c]), Ok(RAX + 4 * RCX + 12));
    // mov rdx, [rip + 0x10]
    assert_eq!(load(&[0x48, 0x8b, 0x15, 0x10, 0, 0, 0]), Ok(IP + 7 + 0x10));
    // mov edx, [eax - 4] with an address-size prefix
    assert_eq!(load(&[0x67, 0x8b, 0x50, 0xfc]), Ok(RAX - 4));
}

#[test]
fn a_load_that_overwrites_its_own_base_or_index_is_unknown() {
    // mov rax, [rax + 8]; mov ecx, [rax + rcx]; cmovne rax, [rax]; mov al, [rax]
    for code in [&[0x48, 0x8b, 0x40, 8][..], &[0x8b, 0x0c, 0x08], &[0x48, 0x0f, 0x45, 0], &[0x8a, 0]] {
        assert_eq!(load(code), Err(Unknown::Overwritten), "{code:x?}");
    }
    // xlat loads AL from RBX + AL.
    assert_eq!(load(&[0xd7]), Err(Unknown::Overwritten));
    // mov [rax], rax changes nothing of its address.
    assert_eq!(address(&[0x48, 0x89, 0], Access::Store), Ok(RAX));
}

#[test]
fn the_stack_pointer_is_moved_back() {
    // push rax; push qword [rsp + 8]; pop rbx; ret; ret 16; leave
    assert_eq!(address(&[0x50], Access::Store), Ok(RSP));
    assert_eq!(load(&[0xff, 0x74, 0x24, 8]), Ok(RSP + 8 + 8));
    assert_eq!(address(&[0xff, 0x74, 0x24, 8], Access::Store), Ok(RSP));
    assert_eq!(load(&[0x5b]), Ok(RSP - 8));
    assert_eq!(load(&[0xc3]), Ok(RSP - 8));
    assert_eq!(load(&[0xc2, 16, 0]), Ok(RSP - 24));
    assert_eq!(load(&[0xc9]), Ok(RSP - 8));
    // pop qword [rsp + 8] computes its address after it has moved RSP (SDM Vol. 2B, "POP").
    assert_eq!(address(&[0x8f, 0x44, 0x24, 8], Access::Store), Ok(RSP + 8));
    // pop rsp
    assert_eq!(load(&[0x5c]), Err(Unknown::Overwritten));
    let _ = RBP;
}

#[test]
fn a_call_goes_where_it_says_and_stores_the_return_address() {
    let after = registers();
    let call = [0xe8, 0, 1, 0, 0];
    let executed = |next_ip| Executed { code: &call, ip: IP, bits: 64, next_ip, after: &after };
    assert_eq!(executed(IP + 5 + 0x100).data_address(Access::Store), Ok(RSP));
    assert_eq!(executed(IP + 5).data_address(Access::Store), Err(Unknown::OtherRegisters));
    // call [rbx]: the load and the store have their own addresses.
    let call = [0xff, 0x13];
    let executed = Executed { code: &call, ip: IP, bits: 64, next_ip: 0x7777, after: &after };
    assert_eq!(executed.data_address(Access::Load), Ok(RBX));
    assert_eq!(executed.data_address(Access::Any), Err(Unknown::Several));
}

#[test]
fn string_instructions_are_undone_by_their_direction() {
    // movsq; lodsb; stosd
    assert_eq!(load(&[0x48, 0xa5]), Ok(RSI - 8));
    assert_eq!(address(&[0x48, 0xa5], Access::Store), Ok(RDI - 8));
    assert_eq!(address(&[0x48, 0xa5], Access::Any), Err(Unknown::Several));
    assert_eq!(address(&[0xab], Access::Store), Ok(RDI - 4));
    let mut down = registers();
    down.0[Registers::RFLAGS] = DIRECTION_FLAG;
    assert_eq!(with(&[0xac], &down, Access::Load), Ok(RSI + 1));
    // rep movsb
    assert_eq!(load(&[0xf3, 0xa4]), Err(Unknown::Repeated));
}

#[test]
fn what_no_record_tells_is_unknown_with_its_reason() {
    // mov rax, fs:[0]; vgatherdps; vmovups zmm0{k1}, [rax]; fxsave [rax]; lea; nop [rax]; garbage
    assert_eq!(load(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0]), Err(Unknown::SegmentBase));
    assert_eq!(load(&[0xc4, 0xe2, 0x71, 0x92, 0x04, 0x18]), Err(Unknown::Gather));
    assert_eq!(load(&[0x62, 0xf1, 0x7c, 0x49, 0x10, 0x00]), Err(Unknown::Masked));
    assert_eq!(address(&[0x0f, 0xae, 0x00], Access::Store), Err(Unknown::Large));
    assert_eq!(load(&[0x48, 0x8d, 0x40, 8]), Err(Unknown::NoAccess));
    assert_eq!(load(&[0x0f, 0x1f, 0x00]), Err(Unknown::NoAccess));
    assert_eq!(load(&[0x06]), Err(Unknown::NotDecoded));
}

#[test]
fn bit_tests_reach_beyond_their_operand() {
    let mut after = registers();
    // bt [rax], rcx with bit 200, and with bit -1
    after.0[4] = 200;
    assert_eq!(with(&[0x48, 0x0f, 0xa3, 0x08], &after, Access::Load), Ok(RAX + 24));
    after.0[4] = u64::MAX;
    assert_eq!(with(&[0x48, 0x0f, 0xa3, 0x08], &after, Access::Load), Ok(RAX - 8));
}

#[test]
fn registers_of_another_instruction_are_not_believed() {
    let after = registers();
    let code = [0x48, 0x8b, 0x10];
    let executed = |next_ip| Executed { code: &code, ip: IP, bits: 64, next_ip, after: &after };
    assert_eq!(executed(IP + 3).data_address(Access::Load), Ok(RAX));
    assert_eq!(executed(IP + 9).data_address(Access::Load), Err(Unknown::OtherRegisters));
}

proptest::proptest! {
    /// Whatever the bytes are, there is an answer.
    #[test]
    fn no_bytes_are_too_odd(code: Vec<u8>, next_ip: u64, wide: bool) {
        let after = registers();
        let bits = if wide { 64 } else { 32 };
        for wanted in [Access::Load, Access::Store, Access::Any] {
            let _ = Executed { code: &code, ip: IP, bits, next_ip, after: &after }.data_address(wanted);
        }
    }
}
