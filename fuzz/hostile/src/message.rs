//! The message decoder, and what is done first with what a message says.
//!
//! A packet is a message or an error. A message can be sent again, and says the same then: what decodes to something
//! that cannot be encoded would be a second language, which only attackers speak.

use echo::memory::layout::DataLayout;
use echo::ring::control::Geometry;
use echo::spec::TableSpec;
use echo::wire::codec;
use echo::wire::message::{Answer, Attachment, Call, Event, Request};

/// Any bytes, as a packet from a client and as one from the daemon.
///
/// # Panics
/// If something does not hold.
pub fn holds(bytes: &[u8]) {
    if let Ok(request) = codec::decode_request(bytes) {
        let again = codec::encode_request(&request).expect("what came in one packet fits into one");
        assert!(again.len() <= bytes.len(), "the shortest form is at most as long as any other");
        assert_eq!(codec::decode_request(&again).expect("it was a request"), request);
        if let Request::Call { call: Call::CreateTable { spec, .. }, .. } = &request {
            can_be_made_or_refused(spec);
        }
    }
    if let Ok(event) = codec::decode_event(bytes) {
        let again = codec::encode_event(&event).expect("what came in one packet fits into one");
        assert!(again.len() <= bytes.len(), "the shortest form is at most as long as any other");
        assert_eq!(codec::decode_event(&again).expect("it was an event"), event);
        if let Event::Answer { answer: Answer::Attached(attachment), .. } = &event {
            can_be_mapped_or_refused(attachment);
        }
    }
}

/// What the daemon computes of a spec before it takes any memory.
fn can_be_made_or_refused(spec: &TableSpec) {
    if spec.validate().is_err() || codec::check_spec(spec).is_err() {
        return;
    }
    let geometry = Geometry::of(spec).expect("a valid spec has a ring");
    let Ok(layout) = DataLayout::of(spec) else { return };
    assert_eq!(layout.places().len(), spec.arrays.len());
    // What the daemon says of it must be what a client takes for it.
    let offsets: Vec<u64> = layout.places().iter().map(|place| place.offset).collect();
    let announced = DataLayout::announced(spec, &offsets, layout.bytes());
    assert!(announced.is_ok(), "a client refuses the layout of its daemon");
    assert!(geometry.control_bytes() > 0);
}

/// What a client computes of an attachment before it maps anything.
fn can_be_mapped_or_refused(attachment: &Attachment) {
    if attachment.spec.validate().is_err() {
        return;
    }
    let _ = Geometry::announced(attachment);
    if let Ok(layout) = DataLayout::announced(&attachment.spec, &attachment.offsets, attachment.data_bytes) {
        for place in layout.places() {
            let end = place.offset.checked_add(place.max_bytes);
            assert!(end.is_some_and(|end| end <= layout.bytes()), "an array lies beside its file");
        }
    }
}
