//! A table as one process has it mapped.
//!
//! Nothing that the daemon or another process says is believed before it is checked: descriptors, sizes, seals,
//! geometry, the places of the arrays. What comes out can be used without further looks.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use echo::ids::SlotIndex;
use echo::memory::layout::DataLayout;
use echo::memory::memfd::Sealed;
use echo::memory::syscalls::page_size;
use echo::memory::{Access, Mapping, SharedBacking};
use echo::ring::buf::PytreeRingBuf;
use echo::ring::control::{Control, Geometry};
use echo::ring::words::Words;
use echo::spec::TableSpec;
use echo::table::store::Rights;
use echo::wire::message::Attachment;

use crate::{Error, Result};

/// The mapped table.
pub(crate) struct Table {
    pub(crate) spec: Arc<TableSpec>,
    pub(crate) control: Control,
    pub(crate) arrays: PytreeRingBuf<SharedBacking>,
    pub(crate) blocks: u32,
}

impl Table {
    /// Checks and maps what a member was sent: data and control.
    pub(crate) fn map(attachment: &Attachment, descriptors: Vec<OwnedFd>, rights: Rights) -> Result<Self> {
        let spec = &attachment.spec;
        let announced = |what: &dyn std::fmt::Display| Error::Announced(what.to_string());
        spec.validate().map_err(|error| announced(&error))?;
        if attachment.blocks == 0 || attachment.blocks > spec.max_capacity {
            return Err(announced(&format!("{} blocks of at most {}", attachment.blocks, spec.max_capacity)));
        }
        let geometry = Geometry::announced(attachment).map_err(|error| announced(&error))?;
        let [data, control]: [OwnedFd; 2] =
            descriptors.try_into().map_err(|_| announced(&"two descriptors belong to a table"))?;

        let (data_access, control_access) = match rights {
            Rights::Write => (Access::ReadWrite, Access::ReadWrite),
            Rights::Read => (Access::ReadOnly, Access::ReadOnly),
            Rights::Pin => (Access::ReadWrite, Access::ReadOnly),
        };
        let bytes = geometry.control_bytes().next_multiple_of(page_size());
        let control = Sealed::received(control, bytes as u64, control_access)?;
        let words = Words::mapped(Mapping::new(&control, bytes, control_access)?);
        let control = Control::attach(words, geometry).map_err(|error| announced(&error))?;

        let data = Sealed::received(data, attachment.data_bytes, data_access)?;
        let layout = DataLayout::announced(spec, &attachment.offsets, attachment.data_bytes)?;
        let slots = u64::from(attachment.blocks) * u64::from(spec.batch_size);
        let arrays = PytreeRingBuf::attach(data, &layout, slots, data_access)?;
        Ok(Self { spec: Arc::new(spec.clone()), control, arrays, blocks: attachment.blocks })
    }

    /// A slot of the mapped part.
    pub(crate) fn slot(&self, raw: u64) -> SlotIndex {
        SlotIndex::new(raw, self.arrays.slots()).expect("its block is one of those that are mapped")
    }
}
