//! The terminal as it is written to: rows that scroll away, a frame that stays, overlays.
