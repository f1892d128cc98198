//! The hand-written programs are their own start-up code: nothing runs in them but what their source shows.

fn main() {
    for program in
        ["branches", "calls", "dense", "loops", "phases", "registers", "skid", "strides", "syscalls", "walks"]
    {
        for argument in ["-nostartfiles", "-static", "-no-pie"] {
            println!("cargo:rustc-link-arg-bin={program}={argument}");
        }
    }
}
