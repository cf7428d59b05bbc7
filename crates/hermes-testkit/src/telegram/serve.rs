//! Connections: calls of the API, downloads, controls; and everything that can go wrong.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::task;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::FakeTelegramShared;
use super::answer::{BotAnswer, BotError, error, too_many};
use super::params::BotParams;
use super::state::{BotRequest, FakeTelegramState, TelegramFault};
use crate::model_server::http::{ArrivedRequest, HttpConnection, head};

/// Accepts until told to stop. While the server refuses there is no listener at all.
pub(super) async fn accept(
    listener: TcpListener,
    shared: Arc<FakeTelegramShared>,
    stop: CancellationToken,
) {
    let address = listener.local_addr().expect("the listener has an address");
    let mut listener = Some(listener);
    let mut refusing = shared.refusing.subscribe();
    let mut open = stop.child_token();
    let connections = TaskTracker::new();
    loop {
        if *refusing.borrow_and_update() {
            listener = None;
            open.cancel();
            connections.close();
            connections.wait().await;
            shared.set_listening(false);
        } else if listener.is_none() {
            listener = Some(bind(address).await);
            open = stop.child_token();
            connections.reopen();
            shared.set_listening(true);
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            _ = refusing.changed() => {}
            connection = accepted => {
                let Ok((stream, _)) = connection else { continue };
                let (shared, open) = (shared.clone(), open.clone());
                task::spawn("telegram connection", connections.track_future(async move {
                    tokio::select! {
                        () = open.cancelled() => {}
                        // A client that went away is not our trouble.
                        _ = connection_loop(HttpConnection::new(stream), &shared) => {}
                    }
                }));
            }
        }
    }
}

async fn bind(address: std::net::SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            // The port is ours; connections that end may hold it for a moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn connection_loop(
    mut connection: HttpConnection,
    shared: &Arc<FakeTelegramShared>,
) -> io::Result<()> {
    while let Some(request) = connection.next().await? {
        let (path, _) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let path = path.to_owned();
        if path == "/control" {
            let answer = super::control::run(shared, &request.body);
            respond(&mut connection, 200, &answer).await?;
        } else if let Some(rest) = path.strip_prefix("/file/bot") {
            download(&mut connection, shared, rest).await?;
        } else if let Some(rest) = path.strip_prefix("/bot") {
            match call(&mut connection, shared, rest, &request).await? {
                Next::Go => {}
                Next::Reset => {
                    connection.reset();
                    return Ok(());
                }
            }
        } else {
            let body = error(404, "Not Found").envelope();
            respond(&mut connection, 404, &body).await?;
        }
        if !request.keep_alive {
            return Ok(());
        }
    }
    Ok(())
}

enum Next {
    Go,
    Reset,
}

async fn call(
    connection: &mut HttpConnection,
    shared: &Arc<FakeTelegramShared>,
    rest: &str,
    request: &ArrivedRequest,
) -> io::Result<Next> {
    let Some((token, method)) = rest.split_once('/') else {
        return refuse(connection, &error(404, "Not Found")).await;
    };
    if token != shared.world().token {
        return refuse(connection, &error(401, "Unauthorized")).await;
    }
    let params = match BotParams::read(request) {
        Ok(params) => params,
        Err(error) => return refuse(connection, &error).await,
    };
    let fault = shared.change(|world| {
        world.requests.push(BotRequest {
            method: method.to_owned(),
            params: params.clone(),
        });
        world.fault(method)
    });
    match fault {
        Some(TelegramFault::Hang) => {
            connection.gone().await;
            return Ok(Next::Reset);
        }
        Some(TelegramFault::Cut) => return Ok(Next::Reset),
        Some(TelegramFault::Status(status)) => {
            let page = "<html><head><title>Bad Gateway</title></head></html>";
            let head = head(status, "text/html", &[], Some(page.len()));
            connection.write(head.as_bytes()).await?;
            connection.write(page.as_bytes()).await?;
            return Ok(Next::Go);
        }
        Some(TelegramFault::Garbage) => {
            let head = head(200, "application/json", &[], Some(4));
            connection.write(head.as_bytes()).await?;
            connection.write(b"{ok:").await?;
            return Ok(Next::Go);
        }
        Some(TelegramFault::TooMany { retry_after }) => {
            return refuse(connection, &too_many(retry_after)).await;
        }
        Some(TelegramFault::Error(code, text)) => {
            return refuse(connection, &error(code, &text)).await;
        }
        Some(TelegramFault::CutAfter | TelegramFault::HangAfter) | None => {}
    }
    let answer = if method.eq_ignore_ascii_case("getUpdates") {
        tokio::select! {
            answer = poll(shared, &params) => answer,
            () = connection.gone() => return Ok(Next::Reset),
        }
    } else {
        shared.change(|world| world.call(method, &params))
    };
    if fault == Some(TelegramFault::CutAfter) {
        return Ok(Next::Reset);
    }
    if fault == Some(TelegramFault::HangAfter) {
        connection.gone().await;
        return Ok(Next::Reset);
    }
    match answer {
        Ok(result) => {
            respond(connection, 200, &json!({"ok": true, "result": result})).await?;
            Ok(Next::Go)
        }
        Err(error) => refuse(connection, &error).await,
    }
}

/// Long polling: answers as soon as something waits.
async fn poll(shared: &Arc<FakeTelegramShared>, params: &BotParams) -> BotAnswer {
    let mine = shared.change(|world| world.begin_poll(params))?;
    let timeout = Duration::from_secs(params.number("timeout").unwrap_or(0).clamp(0, 50) as u64);
    let deadline = tokio::time::Instant::now() + timeout;
    let mut changed = shared.version.subscribe();
    loop {
        {
            let world = shared.world();
            if json!(world.poll) != mine {
                return Err(error(
                    409,
                    "Conflict: terminated by other getUpdates request; make sure that only one \
                     bot instance is running",
                ));
            }
            if world.deaf {
                return Ok(json!([]));
            }
            let waiting = world.waiting(params);
            if !waiting.is_empty() {
                return Ok(json!(waiting));
            }
        }
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => return Ok(json!([])),
            _ = changed.changed() => {}
        }
    }
}

async fn refuse(connection: &mut HttpConnection, error: &BotError) -> io::Result<Next> {
    respond(connection, error.code, &error.envelope()).await?;
    Ok(Next::Go)
}

async fn respond(connection: &mut HttpConnection, status: u16, body: &Value) -> io::Result<()> {
    let body = body.to_string();
    let head = head(status, "application/json", &[], Some(body.len()));
    connection.write(head.as_bytes()).await?;
    connection.write(body.as_bytes()).await
}

async fn download(
    connection: &mut HttpConnection,
    shared: &Arc<FakeTelegramShared>,
    rest: &str,
) -> io::Result<()> {
    let bytes = {
        let mut world = shared.world();
        let broken = world.fault("download");
        let rest = super::params::decode(rest);
        let path = rest.split_once('/').map(|(token, path)| {
            let id = path
                .strip_prefix("files/")
                .and_then(|path| path.split('/').next());
            (token == world.token, id.unwrap_or_default().to_owned())
        });
        match (broken, path) {
            (None, Some((true, id))) => world.files.get(&id).map(|file| file.bytes.clone()),
            _ => None,
        }
    };
    match bytes {
        Some(bytes) => {
            let head = head(200, "application/octet-stream", &[], Some(bytes.len()));
            connection.write(head.as_bytes()).await?;
            connection.write(&bytes).await
        }
        None => respond(connection, 404, &error(404, "Not Found").envelope()).await,
    }
}

impl FakeTelegramState {
    fn call(&mut self, method: &str, params: &BotParams) -> BotAnswer {
        match method.to_ascii_lowercase().as_str() {
            "getme" => Ok(self.bot.clone()),
            "logout"
            | "close"
            | "setmyshortdescription"
            | "setmydescription"
            | "editforumtopic"
            | "closeforumtopic" => Ok(json!(true)),
            "setwebhook" => self.set_webhook(params),
            "deletewebhook" => Ok(self.delete_webhook(params)),
            "getwebhookinfo" => Ok(self.webhook_info()),
            "sendmessage" => self.send_message(params),
            "editmessagetext" => self.edit_message_text(params),
            "editmessagereplymarkup" => self.edit_reply_markup(params),
            "deletemessage" => self.delete_message(params),
            "sendmessagedraft" => self.send_draft(params),
            "sendphoto" => self.send_file("photo", params),
            "senddocument" => self.send_file("document", params),
            "sendvoice" => self.send_file("voice", params),
            "sendaudio" => self.send_file("audio", params),
            "sendvideo" => self.send_file("video", params),
            "sendanimation" => self.send_file("animation", params),
            "sendsticker" => self.send_file("sticker", params),
            "sendmediagroup" => self.send_media_group(params),
            "getfile" => self.get_file(params),
            "sendchataction" => self.chat_action(params),
            "setmessagereaction" => self.set_reaction(params),
            "answercallbackquery" => self.answer_callback(params),
            "setmycommands" => self.set_commands(params),
            "getmycommands" => self.get_commands(params),
            "getchat" => self.get_chat(params),
            "createforumtopic" => self.create_topic(params),
            _ => Err(error(404, "Not Found: method not found")),
        }
    }
}
