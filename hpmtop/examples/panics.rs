//! Panics while it has the terminal: `target/release/suite screen` looks whether it is given back.

fn main() -> std::io::Result<()> {
    hpmtop::synthetic::panic_on_screen()
}
