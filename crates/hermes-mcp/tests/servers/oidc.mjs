// A real authorization server (npm oidc-provider) with an MCP endpoint that trusts it.
// Usage: node oidc.mjs <node_modules>   prints "ready <port>"; ends when its input ends.
// Every login is granted at once: a browser is only redirected.
import { createServer } from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

// The library's remarks would break the pipe once nobody reads it.
console.log = console.info = console.warn = () => {};

const modules = process.argv[2];
const { default: Provider } = await import(
  pathToFileURL(join(modules, "oidc-provider/lib/index.js"))
);

const server = createServer();
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const base = `http://127.0.0.1:${server.address().port}`;
const resource = `${base}/mcp`;

const provider = new Provider(base, {
  cookies: { keys: ["only for tests"] },
  scopes: ["openid", "offline_access", "read"],
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_ctx, indicator) => {
        if (indicator !== resource) throw new Error(`unknown resource ${indicator}`);
        return { scope: "read", audience: resource, accessTokenFormat: "opaque" };
      },
    },
  },
  pkce: { required: () => true },
  rotateRefreshToken: true,
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
});

async function interact(request, response) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    const result = { login: { accountId: "ann" } };
    return provider.interactionFinished(request, response, result, {
      mergeWithLastSubmission: false,
    });
  }
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(" "));
  for (const [indicator, scopes] of Object.entries(missingResourceScopes ?? {})) {
    grant.addResourceScope(indicator, scopes.join(" "));
  }
  const result = { consent: { grantId: await grant.save() } };
  return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
}

function send(response, status, body, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

async function guarded(request, response) {
  const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1];
  const found = token && (await provider.AccessToken.find(token));
  if (found?.aud === resource) return send(response, 200, { scope: found.scope });
  return send(
    response,
    401,
    { error: "invalid_token" },
    {
      "www-authenticate": `Bearer error="invalid_token", scope="read", resource_metadata="${base}/.well-known/oauth-protected-resource/mcp"`,
    },
  );
}

const callback = provider.callback();
server.on("request", (request, response) => {
  const { pathname, searchParams } = new URL(request.url, base);
  const fail = (error) => send(response, 500, { error: String(error) });
  if (pathname === "/.well-known/oauth-protected-resource/mcp") {
    send(response, 200, { resource, authorization_servers: [base], scopes_supported: ["read"] });
  } else if (pathname === "/mcp") {
    guarded(request, response).catch(fail);
  } else if (pathname === "/revoke") {
    provider.AccessToken.find(searchParams.get("token"))
      .then((token) => token?.destroy())
      .then(() => send(response, 200, {}))
      .catch(fail);
  } else if (pathname.startsWith("/interaction/")) {
    interact(request, response).catch(fail);
  } else {
    callback(request, response);
  }
});

process.stdin.on("end", () => process.exit(0)).resume();
process.stdout.write(`ready ${server.address().port}\n`);
