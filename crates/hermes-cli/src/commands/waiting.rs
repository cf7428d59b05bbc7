//! Pending writes of the agent (`memory.write_approval`, `skills.write_approval`): list, approve,
//! reject.

use hermes_store::{PendingWrite, PendingWrites, Subsystem};

use crate::commands::Context;
use crate::exit::{Failure, Outcome};

pub(crate) fn list(cx: &Context, subsystem: Subsystem, as_json: bool) -> Outcome {
    let writes = PendingWrites::new(cx.home.root()).list(subsystem)?;
    if as_json {
        return Ok(cx.out.json(&writes)?);
    }
    if writes.is_empty() {
        return Ok(cx.out.line("Nothing is waiting.")?);
    }
    for write in writes {
        cx.out.line(format!("{}  {}", write.id, write.summary))?;
    }
    let name = subsystem.as_str();
    cx.out.remark(format!(
        "hermes {name} approve ID, or hermes {name} reject ID"
    ));
    Ok(())
}

pub(crate) fn find(cx: &Context, subsystem: Subsystem, id: &str) -> Result<PendingWrite, Failure> {
    let writes = PendingWrites::new(cx.home.root()).list(subsystem)?;
    writes
        .into_iter()
        .find(|write| write.id == id)
        .ok_or_else(|| Failure::not_found(format!("nothing with the id {id} is waiting")))
}

pub(crate) fn discard(cx: &Context, subsystem: Subsystem, write: &PendingWrite) -> Outcome {
    PendingWrites::new(cx.home.root()).discard(subsystem, &write.id)?;
    Ok(())
}

pub(crate) fn reject(cx: &Context, subsystem: Subsystem, id: &str) -> Outcome {
    let write = find(cx, subsystem, id)?;
    discard(cx, subsystem, &write)?;
    Ok(cx.out.line(format!("Dropped: {}", write.summary))?)
}
