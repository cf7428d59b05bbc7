//! Reads whole files for other tools, with the rules of `read_file`.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::tool::ToolContext;

use super::location::{self, PathProbe, SessionFiles};
use super::{FileDeps, FileToolsShared};
use crate::web::WholeFiles;

/// Reads files like the file tools: same working directory, same refusals.
pub fn whole_files(deps: FileDeps) -> Arc<dyn WholeFiles> {
    Arc::new(WholeFileReader(FileToolsShared::new(deps)))
}

struct WholeFileReader(FileToolsShared);

impl WholeFileReader {
    async fn load(&self, given: &str, limit: usize, cx: &ToolContext) -> Result<Vec<u8>, String> {
        let refused = |why: &str| format!("{given} is not read: {why}");
        let too_large = || format!("{given} is larger than {} MB", limit >> 20);
        let located = self.0.located(given, cx).await;
        let path = located.map_err(|error| format!("{given}: {error}"))?;
        let guard = self.0.guard_in(cx);
        if let Some(why) = guard.unreadable_as_named(&path) {
            return Err(refused(why));
        }
        if let SessionFiles::Remote(environment) = &self.0.disk {
            let files = environment.files();
            let path = files.resolve(&path, Path::new("/")).await;
            let path = path.map_err(|error| format!("{given}: {error}"))?;
            if let Some(why) = guard.unreadable(&path) {
                return Err(refused(why));
            }
            let bytes = files.read(&path, 0, limit + 1).await;
            let bytes = bytes.map_err(|error| format!("{given}: {error}"))?;
            return if bytes.len() > limit {
                Err(too_large())
            } else {
                Ok(bytes.to_vec())
            };
        }
        let given = given.to_owned();
        let found = location::blocking(move || Ok(location::probe(&path))).await;
        let found = match found.map_err(|error| format!("{given}: {error}"))? {
            Ok(PathProbe::File(found)) => found,
            Ok(PathProbe::Directory(_)) => return Err(format!("{given} is a directory")),
            Ok(PathProbe::Other) => return Err(refused("it is not a regular file")),
            Err(error) => return Err(format!("{given}: {error}")),
        };
        if let Some(why) = guard.unreadable(&found.path) {
            return Err(refused(why));
        }
        if guard.is_secret_inode(found.id) {
            return Err(refused("it holds credentials of Hermes"));
        }
        let bytes = location::blocking(move || {
            let mut bytes = Vec::new();
            let opened = found.open()?;
            (&opened.file)
                .take(limit as u64 + 1)
                .read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        let bytes = bytes.await.map_err(|error| format!("{given}: {error}"))?;
        if bytes.len() > limit {
            Err(too_large())
        } else {
            Ok(bytes)
        }
    }
}

impl WholeFiles for WholeFileReader {
    fn read<'a>(
        &'a self,
        path: &'a str,
        limit: usize,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        Box::pin(self.load(path, limit, cx))
    }
}
