//! The offloads that generic XDP turns off.

use std::io;

use crate::device::lines::Lines;
use crate::sys::Control;

/// Offloads of received packets that the kernel turns off for generic XDP, by their names in
/// `ethtool -k`. It does not turn them on again.
pub(super) const RECEIVE: [&str; 2] = ["rx-gro-hw", "rx-lro"];

/// Offloads of an interface that are off because of its steering program. Dropping this value turns
/// them on again.
pub(super) struct LostOffloads {
    interface: String,
    /// The interface's number. Another interface may get its name.
    index: u32,
    names: Vec<&'static str>,
}

impl LostOffloads {
    /// Calls `attach`, which attaches a program to the interface with this number. Also returns those of the
    /// `offloads` that this has turned off, if there are any, and adds a line about them to the summary.
    ///
    /// # Errors
    /// That of `attach`.
    pub(super) fn around<T, E>(
        (control, interface, index): (&Control, &str, u32),
        offloads: &[&'static str],
        lines: &mut Lines,
        attach: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Option<Self>, T), E> {
        let mut names = control.active_features(interface, offloads);
        let attached = attach()?;
        let after = control.active_features(interface, &names);
        names.retain(|name| !after.contains(name));
        if names.is_empty() {
            return Ok((None, attached));
        }
        lines.push((
            "receive offloads",
            format!(
                "the kernel has turned off {} of {interface} until the server ends",
                names.join(" and ")
            ),
        ));
        let lost = Self {
            interface: interface.to_owned(),
            index,
            names,
        };
        Ok((Some(lost), attached))
    }
}

impl Drop for LostOffloads {
    fn drop(&mut self) {
        let Self {
            interface,
            index,
            names,
        } = self;
        for name in names {
            let set = Control::new().and_then(|control| {
                if control.index(interface)? != *index {
                    return Err(io::ErrorKind::NotFound.into());
                }
                control.set_feature(interface, name, true)
            });
            if let Err(error) = set {
                tracing::debug!(
                    target: "nmio::device", "cannot turn on {name} of {interface}: {error}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::linux::namespace::Namespace;

    const GRO: [&str; 1] = ["rx-gro"];

    #[test]
    fn an_offload_that_goes_off_is_on_again_at_the_end() {
        let work = || -> io::Result<()> {
            let control = Control::new()?;
            let is_on = || !control.active_features("lo", &GRO).is_empty();
            let mut lines = Lines::new();
            assert!(is_on());
            let place = (&control, "lo", control.index("lo")?);
            let (lost, ()) =
                LostOffloads::around(place, &GRO, &mut lines, || Ok::<_, io::Error>(()))?;
            assert!(lost.is_none() && lines.is_empty());
            let turn_off = || control.set_feature("lo", GRO[0], false);
            let (lost, ()) = LostOffloads::around(place, &GRO, &mut lines, turn_off)?;
            assert!(lost.is_some() && !is_on());
            assert!(lines[0].1.contains("turned off rx-gro of lo"), "{lines:?}");
            drop(lost);
            assert!(is_on());
            // Another interface has the name.
            let place = (&control, "lo", 0);
            let (lost, ()) = LostOffloads::around(place, &GRO, &mut lines, turn_off)?;
            drop(lost);
            assert!(!is_on());
            assert!(control.set_feature("lo", "no-feature", true).is_err());
            Ok(())
        };
        Namespace::new().unwrap().run(work).unwrap().unwrap();
    }
}
