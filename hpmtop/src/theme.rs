//! Colours by what they mean. Nothing is told by colour alone: without any, the same is said by signs and words.

use ratatui::style::{Color, Modifier, Style};
use serde::{Deserialize, Serialize};

/// The themes, in the order in which a key goes through them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ThemeName {
    /// For terminals with 256 colours, on dark and on light ground
    #[default]
    Default,
    /// Colours that people with any colour vision can tell apart (Okabe and Ito's)
    ColourBlind,
    /// The terminal's own 16 colours
    Plain,
    /// No colours, only bold, dim and reversed
    None,
}

impl ThemeName {
    /// The next one.
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Default => Self::ColourBlind,
            Self::ColourBlind => Self::Plain,
            Self::Plain => Self::None,
            Self::None => Self::Default,
        }
    }

    /// As the configuration has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::ColourBlind => "colour-blind",
            Self::Plain => "plain",
            Self::None => "none",
        }
    }

    /// Its colours.
    pub(crate) fn theme(self) -> Theme {
        match self {
            Self::Default => Theme {
                coloured: true,
                accent: Color::Indexed(75),
                dim: Color::Indexed(244),
                low: Color::Indexed(71),
                middle: Color::Indexed(178),
                high: Color::Indexed(167),
                bar: Color::Indexed(236),
                series: [75, 178, 71, 167, 139, 80, 208, 110].map(Color::Indexed),
            },
            // Okabe and Ito, "Color Universal Design" (2008).
            Self::ColourBlind => Theme {
                coloured: true,
                accent: Color::Rgb(86, 180, 233),
                dim: Color::Indexed(244),
                low: Color::Rgb(0, 158, 115),
                middle: Color::Rgb(240, 228, 66),
                high: Color::Rgb(213, 94, 0),
                bar: Color::Indexed(236),
                series: [
                    Color::Rgb(86, 180, 233),
                    Color::Rgb(230, 159, 0),
                    Color::Rgb(0, 158, 115),
                    Color::Rgb(240, 228, 66),
                    Color::Rgb(0, 114, 178),
                    Color::Rgb(213, 94, 0),
                    Color::Rgb(204, 121, 167),
                    Color::Indexed(250),
                ],
            },
            Self::Plain => Theme {
                coloured: true,
                accent: Color::Cyan,
                dim: Color::DarkGray,
                low: Color::Green,
                middle: Color::Yellow,
                high: Color::Red,
                bar: Color::Reset,
                series: [
                    Color::Cyan,
                    Color::Yellow,
                    Color::Green,
                    Color::Magenta,
                    Color::Blue,
                    Color::Red,
                    Color::White,
                    Color::LightCyan,
                ],
            },
            Self::None => Theme {
                coloured: false,
                accent: Color::Reset,
                dim: Color::Reset,
                low: Color::Reset,
                middle: Color::Reset,
                high: Color::Reset,
                bar: Color::Reset,
                series: [Color::Reset; 8],
            },
        }
    }
}

/// Colours that are different in a row of things.
pub(crate) const SERIES: usize = 8;

/// Colours by their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Theme {
    /// There are colours at all.
    pub(crate) coloured: bool,
    pub(crate) accent: Color,
    pub(crate) dim: Color,
    pub(crate) low: Color,
    pub(crate) middle: Color,
    pub(crate) high: Color,
    bar: Color,
    series: [Color; SERIES],
}

impl Theme {
    /// What is selected.
    pub(crate) fn selected(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Headings of tables.
    pub(crate) fn heading(&self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.coloured { style.fg(self.accent) } else { style.add_modifier(Modifier::UNDERLINED) }
    }

    /// What matters less.
    pub(crate) fn faint(&self) -> Style {
        if self.coloured { Style::new().fg(self.dim) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    /// What stands out.
    pub(crate) fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What has to be known before a number is believed.
    pub(crate) fn warning(&self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.coloured { style.fg(self.middle) } else { style.add_modifier(Modifier::REVERSED) }
    }

    /// A key in a hint.
    pub(crate) fn key(&self) -> Style {
        Style::new().fg(self.accent).add_modifier(Modifier::BOLD)
    }

    /// Title lines.
    pub(crate) fn bar(&self) -> Style {
        if self.coloured { Style::new().bg(self.bar) } else { Style::new() }
    }

    /// A share from 0 to 1.
    pub(crate) fn load(&self, share: f64) -> Style {
        let colour = match share {
            share if share >= 0.8 => self.high,
            share if share >= 0.4 => self.middle,
            _ => self.low,
        };
        Style::new().fg(colour)
    }

    /// One of several things; more than there are colours begin anew.
    pub(crate) fn series(&self, place: usize) -> Style {
        Style::new().fg(self.series[place % SERIES])
    }
}
