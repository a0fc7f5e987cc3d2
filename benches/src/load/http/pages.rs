//! The pages of a run with their prepared requests, and how their responses are checked.

use std::net::SocketAddrV4;

use nmio::Port;

use super::form::Field;
use super::head::Remembered;
use super::numbered::{self, MAX_FILES, NAME_LEN, NumberedSite};
use super::site::{Draw, MAX_PATHS, request};
use super::{Page, Workload};
use crate::load::LoadError;
use crate::load::link::Place;
use crate::load::tcp::{ACK, Fields, PSH, Template, send, send_with};

/// Offset of the path in a request.
const PATH_AT: usize = "GET ".len();

/// A page with its prepared requests.
#[derive(Debug)]
pub(super) struct PreparedPage {
    pub(super) status: u16,
    /// Field that a correct head must have.
    pub(super) field: Option<Field>,
    pub(super) len: u32,
    crcs: [u32; 2],
    pub(super) head: Remembered,
    /// Two request packets: an ordinary request, and the last request on a connection.
    requests: [Template; 2],
    request_lens: [u32; 2],
}

impl PreparedPage {
    fn new(page: &Page, place: &Place) -> Result<Self, LoadError> {
        let host = SocketAddrV4::new(place.target.0, place.target.1);
        let texts = [request(page, host, false)?, request(page, host, true)?];
        Ok(Self {
            status: page.form.status(),
            field: page.form.response_field(),
            len: page.len,
            crcs: page.crcs,
            head: Remembered::new(),
            requests: [0, 1].map(|i| Template::new(place, PSH | ACK, &[], &texts[i])),
            request_lens: [0, 1].map(|i| texts[i].len() as u32),
        })
    }
}

/// All pages, and the order in which they are requested.
#[derive(Debug)]
pub(super) struct Pages {
    /// Pages by number. Numbered files share the only entry, whose requests have zeros as name.
    prepared: Box<[PreparedPage]>,
    /// Checksums of numbered files. Empty if the pages are not numbered files.
    numbered: Box<[u32]>,
    draw: Draw,
}

impl Pages {
    /// Prepares the requests of a workload.
    ///
    /// # Errors
    /// Fails if there are no pages or too many, or if a request is too long.
    pub(super) fn new(place: &Place, workload: &Workload) -> Result<Self, LoadError> {
        let invalid = |why: String| Err(LoadError::Asked(why));
        let Workload {
            pages,
            numbered,
            in_turn,
            seed,
            ..
        } = workload;
        if let Some(site) = *numbered {
            let NumberedSite { count, len } = site;
            if count > MAX_FILES {
                return invalid(format!("a site has at most {MAX_FILES} numbered files"));
            }
            let path = "\0".repeat(NAME_LEN) + numbered::EXTENSION;
            let page = Page::of(&path, 1.0, &numbered::body(0, len));
            return Ok(Self {
                prepared: [PreparedPage::new(&page, place)?].into(),
                numbered: site.checksums(),
                draw: if *in_turn {
                    Draw::in_turn(count)
                } else {
                    Draw::new(&numbered::weights(count, *seed), *seed)
                },
            });
        }
        if pages.is_empty() || pages.len() > MAX_PATHS {
            return invalid(format!("a mix has 1 to {MAX_PATHS} paths"));
        }
        let prepared = pages.iter().map(|page| PreparedPage::new(page, place));
        let weights: Vec<f64> = pages.iter().map(|page| page.weight).collect();
        Ok(Self {
            prepared: prepared.collect::<Result<_, _>>()?,
            numbered: [].into(),
            draw: Draw::new(&weights, *seed),
        })
    }

    /// Returns the number of the page to request next.
    #[inline(always)]
    pub(super) fn next(&mut self) -> u32 {
        self.draw.next()
    }

    /// Returns the page with this number.
    #[inline(always)]
    pub(super) fn get(&self, page: u32) -> &PreparedPage {
        &self.prepared[self.index(page)]
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, page: u32) -> &mut PreparedPage {
        &mut self.prepared[self.index(page)]
    }

    #[inline(always)]
    fn index(&self, page: u32) -> usize {
        if self.numbered.is_empty() {
            page as usize
        } else {
            0
        }
    }

    /// Returns true if the body of a page may have this checksum.
    #[inline(always)]
    pub(super) fn has_crc(&self, page: u32, crc: u32) -> bool {
        if self.numbered.is_empty() {
            self.prepared[page as usize].crcs.contains(&crc)
        } else {
            self.numbered[page as usize] == crc
        }
    }

    /// Returns the length of a request in bytes.
    #[inline(always)]
    pub(super) fn request_len(&self, page: u32, is_last: bool) -> u32 {
        self.get(page).request_lens[usize::from(is_last)]
    }

    /// Returns the length of the longest request in bytes.
    pub(super) fn longest_request(&self) -> u32 {
        let lens = self.prepared.iter().map(|page| page.request_lens[1]);
        lens.max().unwrap_or(0)
    }

    /// Sends a request. Returns false if the port has no free frame or no room.
    #[inline(always)]
    pub(super) fn send_request<P: Port>(
        &self,
        port: &mut P,
        page: u32,
        is_last: bool,
        fields: &Fields,
    ) -> bool {
        let packet = &self.get(page).requests[usize::from(is_last)];
        if self.numbered.is_empty() {
            send(port, packet, fields)
        } else {
            send_with(port, packet, fields, PATH_AT, numbered::name(page))
        }
    }
}
