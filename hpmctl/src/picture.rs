//! Picture files: SVG as it is drawn, or PNG of it. The file's name says which.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::{Database, Family, Query};
use resvg::usvg::{Options, Tree};

use crate::late_file;

/// Pixels of a PNG for each unit of the drawing, so that small text can be read.
const SCALE: f32 = 2.0;
/// A picture that would have more pixels is drawn smaller.
const PIXELS_MAX: f32 = 64e6;

/// Fonts that are taken for `sans-serif` and for `monospace`, the first that is installed. SVG names no font, because every browser
/// has some.
const SANS_SERIF: [&str; 6] =
    ["DejaVu Sans", "Noto Sans", "Liberation Sans", "Arial", "Helvetica", "FreeSans"];
const MONOSPACE: [&str; 6] =
    ["DejaVu Sans Mono", "Noto Sans Mono", "Liberation Mono", "Courier New", "Courier", "FreeMono"];

/// What can be clicked in a flame graph is of no use in a PNG.
const STILL: &str = "#search { display: none }";

/// What is said where a PNG would have no text.
const NO_FONT: &str = "no font is installed with which a PNG's text could be drawn: install one (Debian: fonts-dejavu-core), or name the file .svg";

/// Formats of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

/// The format that a file's name asks for.
fn format(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "svg" => Some(Format::Svg),
        "png" => Some(Format::Png),
        _ => None,
    }
}

/// A picture file of the command line.
///
/// # Errors
/// Its name does not say what it is to be.
pub(crate) fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match format(&path) {
        Some(_) => Ok(path),
        None => Err("a picture's name ends in .svg or .png".into()),
    }
}

/// Draws into a file, which is not begun when there is nothing to put into it.
///
/// # Errors
/// What `draw` says, or the file cannot be written, or the drawing cannot become a PNG.
pub(crate) fn write(path: &Path, draw: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<()> {
    let mut picture = Vec::new();
    draw(&mut picture).with_context(|| format!("cannot draw {}", path.display()))?;
    if format(path) == Some(Format::Png) {
        picture = png(&picture).with_context(|| format!("cannot draw {}", path.display()))?;
    }
    late_file::write(path, picture)
}

/// An SVG drawing as a PNG.
///
/// # Errors
/// There is no font, or the drawing is larger than any memory.
pub(crate) fn png(svg: &[u8]) -> Result<Vec<u8>> {
    let mut fonts = Database::new();
    fonts.load_system_fonts();
    render(svg, fonts)
}

fn render(svg: &[u8], fonts: Database) -> Result<Vec<u8>> {
    let options = Options {
        fontdb: Arc::new(with_families(fonts)?),
        style_sheet: Some(STILL.to_owned()),
        ..Options::default()
    };
    let tree = Tree::from_data(svg, &options)?;
    let size = tree.size();
    let scale = SCALE.min((PIXELS_MAX / (size.width() * size.height())).sqrt());
    let pixels = size.to_int_size().scale_by(scale).context("the drawing has no size")?;
    let mut pixmap =
        Pixmap::new(pixels.width(), pixels.height()).context("the drawing is too large for a PNG")?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
    Ok(pixmap.encode_png()?)
}

/// Gives the families that drawings name a font each: without one their text would silently be missing.
fn with_families(mut fonts: Database) -> Result<Database> {
    let installed = |name: &str| {
        let query = Query { families: &[Family::Name(name)], ..Query::default() };
        fonts.query(&query).is_some()
    };
    let first = |names: &[&str], monospaced: bool| {
        let known = names.iter().find(|name| installed(name)).map(|name| (*name).to_owned());
        let any = || {
            let fitting = fonts.faces().find(|face| face.monospaced == monospaced);
            let face = fitting.or_else(|| fonts.faces().next())?;
            face.families.first().map(|(name, _)| name.clone())
        };
        known.or_else(any).ok_or_else(|| anyhow!(NO_FONT))
    };
    let (sans_serif, monospace) = (first(&SANS_SERIF, false)?, first(&MONOSPACE, true)?);
    fonts.set_sans_serif_family(sans_serif.clone());
    // What else a drawing may name, such as Verdana, falls back to this one.
    fonts.set_serif_family(sans_serif);
    fonts.set_monospace_family(monospace);
    Ok(fonts)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::svg::picture;

    fn system_fonts() -> Database {
        let mut fonts = Database::new();
        fonts.load_system_fonts();
        fonts
    }

    /// Width, height, and how many pixels are dark.
    fn seen(png: &[u8]) -> (u32, u32, usize) {
        let pixmap = Pixmap::decode_png(png).unwrap();
        let dark = pixmap.pixels().iter().filter(|pixel| pixel.red() < 128).count();
        (pixmap.width(), pixmap.height(), dark)
    }

    #[test]
    fn names_say_what_is_drawn() {
        assert_eq!(format(Path::new("a/b.SVG")), Some(Format::Svg));
        assert_eq!(format(Path::new("b.png")), Some(Format::Png));
        assert!(["x", "png", "x.jpg", ".svg", "x."].into_iter().all(|text| file(text).is_err()));
    }

    #[test]
    fn shapes_are_where_they_belong_and_text_is_visible() {
        let fonts = system_fonts();
        if fonts.is_empty() {
            // What is told then is the other test's.
            return;
        }
        let body = "<rect x=\"10\" y=\"10\" width=\"5\" height=\"4\" fill=\"black\"/>\n";
        let png = render(picture(60, 40, body).as_bytes(), fonts.clone()).unwrap();
        assert_eq!(seen(&png), (120, 80, 10 * 8));
        for family in ["sans-serif", "monospace", "Verdana", "serif"] {
            let text = format!("<text x=\"10\" y=\"30\" font-family=\"{family}\">hpm µs</text>\n");
            let png = render(picture(60, 40, &text).as_bytes(), fonts.clone()).unwrap();
            assert!(seen(&png).2 > 50, "{family}: {:?}", seen(&png));
        }
    }

    #[test]
    fn without_a_font_it_is_said_so() {
        let error = render(picture(60, 40, "").as_bytes(), Database::new()).unwrap_err();
        assert_eq!(error.to_string(), NO_FONT);
    }

    #[test]
    fn a_huge_drawing_is_drawn_smaller() {
        let fonts = system_fonts();
        if fonts.is_empty() {
            return;
        }
        let (width, height, _) = seen(&render(picture(40_000, 4_000, "").as_bytes(), fonts).unwrap());
        assert!(width as f32 * height as f32 <= PIXELS_MAX * 1.01 && width > 5000, "{width} × {height}");
    }

    #[test]
    fn nothing_is_left_of_what_cannot_be_drawn() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.png");
        let refused = write(&path, |_| Err(io::Error::other("no"))).unwrap_err();
        assert!(format!("{refused:#}").ends_with("x.png: no") && !path.exists());
        write(&temp.path().join("x.svg"), |svg| io::Write::write_all(svg, b"<svg/>")).unwrap();
        assert_eq!(fs::read(temp.path().join("x.svg")).unwrap(), b"<svg/>");
    }
}
