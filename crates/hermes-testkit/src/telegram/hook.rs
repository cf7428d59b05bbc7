//! Delivery of updates to a webhook: one after the other, each until it is taken.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::FakeTelegramShared;

/// How long until an update that was not taken is brought again.
const AGAIN: Duration = Duration::from_millis(20);

pub(super) async fn deliver(shared: Arc<FakeTelegramShared>, stop: CancellationToken) {
    let mut changed = shared.version.subscribe();
    loop {
        changed.borrow_and_update();
        let next = {
            let world = shared.world();
            let hook = &world.webhook;
            (!hook.url.is_empty())
                .then(|| world.updates.front().cloned())
                .flatten()
                .map(|update| (hook.url.clone(), hook.secret.clone(), update))
        };
        let Some((url, secret, update)) = next else {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = changed.changed() => continue,
            }
        };
        let taken = tokio::select! {
            () = stop.cancelled() => return,
            taken = post(&url, secret.as_deref(), &update) => taken,
        };
        match taken {
            Ok(()) => shared.change(|world| {
                let same = world.updates.front() == Some(&update);
                if same && world.webhook.url == url {
                    world.updates.pop_front();
                }
            }),
            Err(error) => {
                shared.change(|world| world.webhook.last_error = Some(error));
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(AGAIN) => {}
                }
            }
        }
    }
}

/// `Ok`: the other side answered 2xx.
async fn post(url: &str, secret: Option<&str>, update: &Value) -> Result<(), String> {
    let rest = url.strip_prefix("http://").ok_or("only http here")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let body = update.to_string();
    let secret = secret
        .map(|secret| format!("X-Telegram-Bot-Api-Secret-Token: {secret}\r\n"))
        .unwrap_or_default();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{secret}\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let talk = async {
        let mut stream = TcpStream::connect(host).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(Duration::from_secs(10), talk)
        .await
        .map_err(|_| "Read timeout expired".to_owned())?
        .map_err(|error| error.to_string())?;
    let status = answer.split(' ').nth(1).unwrap_or_default();
    if status.starts_with('2') {
        return Ok(());
    }
    Err(format!("Wrong response from the webhook: {status}"))
}
