//! `hpmctl control`: starts, stops and dumps a running `hpmctl record --control`.
//!
//! The recorder listens on a Unix socket with an abstract name (unix(7)), which nobody has to clean up. One line is the request, one the
//! answer. Such a socket has no permissions, so the recorder asks who it is: its own user, or root.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;

use crate::output::print;

/// Start, stop or dump a running `hpmctl record --control`.
#[derive(Args, Debug)]
pub(crate) struct ControlArgs {
    /// What to do
    #[arg(value_enum)]
    request: Request,
    /// PID of the recorder, which it tells when it begins
    pid: u32,
    /// Samples a second, for `rate`
    #[arg(required_if_eq("request", "rate"), value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,
}

/// What can be asked of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Request {
    /// Write what is measured from now on
    Start,
    /// Leave out what is measured from now on; the processor goes on measuring
    Stop,
    /// End the trace and go on in another one
    Dump,
    /// End the recording
    End,
    /// Take RATE samples a second from now on, of each event that is recorded with a rate (-F)
    Rate,
}

/// A request as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// What to do.
    pub(crate) request: Request,
    /// Samples a second; with [`Request::Rate`] alone.
    pub(crate) rate: Option<u64>,
}

/// What is answered to a request: what was done, or why it was not.
pub(crate) type Answer = std::result::Result<String, String>;

/// A request is answered, and an answer given, within this time, or nobody is there.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest line.
const LINE_MAX: u64 = 4096;

/// Runs the command.
///
/// # Errors
/// Nobody records under this PID, or the recorder refuses.
pub(crate) fn run(args: &ControlArgs) -> Result<()> {
    let mut words =
        args.request.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    match (args.request, args.rate) {
        (Request::Rate, Some(rate)) => words += &format!(" {rate}"),
        (_, Some(_)) => bail!("a number of samples a second is for `rate` alone"),
        _ => {}
    }
    let stream = UnixStream::connect_addr(&address(args.pid)?)
        .with_context(|| format!("no `hpmctl record --control` has PID {}", args.pid))?;
    let answer = ask(stream, &words).context("the recorder does not answer")?;
    match answer.strip_prefix("ok ") {
        Some(answer) => print(answer),
        None => bail!("the recorder refuses: {answer}"),
    }
}

fn ask(mut stream: UnixStream, word: &str) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{word}")?;
    line(&stream)
}

fn line(stream: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream).take(LINE_MAX).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

fn address(pid: u32) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("hpm-record-{pid}")).context("cannot name the recorder's socket")
}

/// The recorder's side.
pub(crate) struct Controlled(UnixListener);

impl Controlled {
    /// Listens for requests to this process.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn new() -> Result<Self> {
        let listener = UnixListener::bind_addr(&address(std::process::id())?)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .context("cannot listen for `hpmctl control`")?;
        Ok(Self(listener))
    }

    /// Becomes readable when there is a request.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Has the requests that are there carried out; what is returned is the answer, in one line. One that is refused is no error.
    ///
    /// # Errors
    /// What carrying it out says.
    pub(crate) fn serve(&self, mut carry_out: impl FnMut(Asked) -> Result<Answer>) -> Result<()> {
        // An asker that went away again, or says nothing, must not end the recording.
        while let Ok((stream, _)) = self.0.accept() {
            match request(&stream) {
                Ok(request) => match carry_out(request)? {
                    Ok(done) => answer(&stream, &format!("ok {done}")),
                    Err(refusal) => answer(&stream, &refusal),
                },
                Err(refusal) => answer(&stream, &refusal.to_string()),
            }
        }
        Ok(())
    }
}

fn request(stream: &UnixStream) -> Result<Asked> {
    let asker = getsockopt(stream, sockopt::PeerCredentials).context("who asks is not known")?;
    if asker.uid() != 0 && asker.uid() != geteuid().as_raw() {
        bail!("only the user who records, or root, may ask");
    }
    // It is written at once, but on a busy machine its writer may have to wait for a CPU; what is recorded waits in rings meanwhile,
    // which last for longer.
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let words = line(stream).context("nothing was asked")?;
    understood(&words).with_context(|| format!("`{words}` is none of start, stop, dump, end, rate N"))
}

fn understood(words: &str) -> Option<Asked> {
    let (word, rate) = words.split_once(' ').map_or((words, None), |(word, rate)| (word, Some(rate)));
    let (request, rate) = (Request::from_str(word, false).ok()?, rate.map(str::parse).transpose().ok()?);
    ((request == Request::Rate) == rate.is_some()).then_some(Asked { request, rate })
}

fn answer(mut stream: &UnixStream, line: &str) {
    // Who has gone needs no answer.
    let _ = writeln!(stream, "{}", line.replace('\n', " "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_carried_out_and_answered() {
        let controlled = Controlled::new().unwrap();
        let asked = |word: &'static str| {
            let stream = UnixStream::connect_addr(&address(std::process::id()).unwrap()).unwrap();
            std::thread::spawn(move || ask(stream, word).unwrap())
        };
        let mut requests = Vec::new();
        let mut answers = Vec::new();
        for word in ["dump", "sing", "rate 7", "rate", "stop"] {
            let asker = asked(word);
            while !asker.is_finished() {
                let serve = |asked: Asked| {
                    requests.push((asked.request, asked.rate));
                    Ok(if asked.rate == Some(7) {
                        Err("too few".to_owned())
                    } else {
                        Ok("it is\ndone".to_owned())
                    })
                };
                controlled.serve(serve).unwrap();
            }
            answers.push(asker.join().unwrap());
        }
        assert_eq!(requests, [(Request::Dump, None), (Request::Rate, Some(7)), (Request::Stop, None)]);
        let unknown = |words| format!("`{words}` is none of start, stop, dump, end, rate N");
        assert_eq!(
            answers,
            ["ok it is done", &unknown("sing"), "too few", &unknown("rate"), "ok it is done"]
        );
    }

    #[test]
    fn nobody_is_there() {
        let error = run(&ControlArgs { request: Request::Start, pid: u32::MAX, rate: None }).unwrap_err();
        assert!(format!("{error:#}").starts_with("no `hpmctl record --control` has PID"), "{error:#}");
    }
}
