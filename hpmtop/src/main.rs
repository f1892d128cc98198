//! The program `hpmtop`.

fn main() -> std::process::ExitCode {
    hpmtop::main()
}
