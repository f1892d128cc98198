//! A file of which some bytes are replaced for its reader.

use std::io::{self, Read, Seek, SeekFrom};

use super::container::Input;

/// Reads as the file does, but for what is replaced.
pub(super) struct Mended {
    input: Box<dyn Input>,
    /// Where the file ends for its reader, unless a replacement lies behind.
    end: u64,
    /// What is to be read at which place; none overlaps another.
    patches: Vec<(u64, Vec<u8>)>,
    position: u64,
    /// Where the file itself is.
    input_position: Option<u64>,
}

impl Mended {
    pub(super) fn new(input: Box<dyn Input>, end: u64, patches: Vec<(u64, Vec<u8>)>) -> Self {
        Self { input, end, patches, position: 0, input_position: None }
    }
}

impl Read for Mended {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let at = self.position;
        let patch =
            self.patches.iter().find(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&at));
        let read = if let Some((start, bytes)) = patch {
            (&bytes[(at - start) as usize..]).read(buffer)?
        } else {
            let next = self.patches.iter().map(|(start, _)| *start).filter(|start| *start > at).min();
            let room = self.end.min(next.unwrap_or(u64::MAX)).saturating_sub(at);
            let length = usize::try_from(room).unwrap_or(usize::MAX).min(buffer.len());
            if self.input_position != Some(at) {
                self.input.seek(SeekFrom::Start(at))?;
            }
            let read = self.input.read(&mut buffer[..length])?;
            self.input_position = Some(at + read as u64);
            read
        };
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for Mended {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.end.checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn replaced_bytes_are_read_in_their_place() {
        let patches = vec![(2, b"CD".to_vec()), (8, b"IJ".to_vec())];
        let mut mended = Mended::new(Box::new(Cursor::new(b"abcdefghijkl".to_vec())), 6, patches);
        let mut text = String::new();
        mended.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abCDef", "what is behind the end is not there");
        mended.seek(SeekFrom::Start(7)).unwrap();
        assert_eq!(mended.read(&mut [0; 4]).unwrap(), 0);
        mended.seek(SeekFrom::Start(8)).unwrap();
        mended.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abCDefIJ");
    }
}
