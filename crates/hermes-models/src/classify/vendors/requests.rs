//! Errors about the request itself: model, key, content, images, reasoning, schemas.

use hermes_core::model::ErrorClass::{
    AccountPolicy, Auth, ContentPolicy, Format, ImageTooLarge, ImagesUnsupported, ModelNotFound,
    PayloadTooLarge, ReasoningRejected, SchemaRejected,
};

use super::check;

const MODEL_NOT_FOUND: &[(u16, &str)] = &[
    (
        400,
        r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
    ),
    (
        400,
        r#"{"code":20012,"message":"Model does not exist. Please check it carefully.","data":null}"#,
    ),
    (
        400,
        r#"{"error":{"code":"1211","message":"模型不存在，请检查模型代码。"}}"#,
    ),
    (
        400,
        r#"{"error":{"code":"1211","message":"Unknown Model, please check the model code."}}"#,
    ),
    (
        404,
        r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist. If you created the deployment within the last 5 minutes, please wait a moment and try again."}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"The model `mixtral-8x7b-32768` has been decommissioned and is no longer supported. Please refer to https://console.groq.com/docs/deprecations for a recommendation on which model to use instead.","type":"invalid_request_error","code":"model_decommissioned"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"The requested model 'acme/x' is not supported by any provider you have enabled.","type":"invalid_request_error","param":"model","code":"model_not_supported"}}"#,
    ),
    (
        404,
        r#"{"error":{"message":"Unable to access model acme/x. Please visit https://api.together.ai/models to view the list of supported models.","type":"invalid_request_error","param":null,"code":"model_not_available"}}"#,
    ),
    (
        404,
        r#"{"error":{"object":"error","type":"invalid_request_error","code":"NOT_FOUND","message":"Model not found, inaccessible, and/or not deployed"}}"#,
    ),
    (
        404,
        r#"[{"error":{"code":404,"message":"models/gemini-9 is not found for API version v1main, or is not supported for generateContent. Call ListModels to see the list of available models and their supported methods.","status":"NOT_FOUND"}}]"#,
    ),
    (
        404,
        r#"{"error":{"message":"Not found the model kimi-x or Permission denied","type":"resource_not_found_error"}}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"Invalid model: mistral-huge","type":"invalid_model","param":null,"code":"1500"}"#,
    ),
    (
        404,
        r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","param":null,"code":404}"#,
    ),
    (
        404,
        r#"{"error":{"message":"model \"qwen9\" not found, try pulling it first","type":"api_error","param":null,"code":null}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"/chat/completions: Invalid model name passed in model=x. Call `/v1/models` to view available models for your key.","type":"invalid_request_error","param":"None","code":"400"}}"#,
    ),
    (
        404,
        r#"{"error":{"message":"No endpoints found for acme/x.","code":404},"user_id":"u"}"#,
    ),
    (
        400,
        r#"{"error":{"message":"acme/x is not a valid model ID","code":400},"user_id":"u"}"#,
    ),
    (
        404,
        r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
    ),
    (
        503,
        r#"{"error":{"message":"No available channel for model gpt-9 under group default (distributor)","localized_message":"","type":"new_api_error","param":"","code":"model_not_found"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"The requested model is not supported.","code":"model_not_supported","param":"model","type":"invalid_request_error"}}"#,
    ),
    (
        404,
        r#"{"error":{"message":"No models loaded. Please load a model in the developer page or use the 'lms load' command.","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#,
    ),
];

#[test]
fn the_model_is_not_there() {
    check(ModelNotFound, MODEL_NOT_FOUND);
}

const AUTH: &[(u16, &str)] = &[
    (
        400,
        r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}]"#,
    ),
    (
        400,
        r#"[{"error":{"code":400,"message":"API key expired. Please renew the API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]"#,
    ),
    (
        400,
        r#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***. You can obtain an API key from https://console.x.ai."}"#,
    ),
    (
        401,
        r#"{"error":{"message":"Invalid Authentication","type":"invalid_authentication_error"}}"#,
    ),
    (401, r#""Invalid token""#),
    (
        401,
        r#"{"error":{"code":"1000","message":"身份验证失败。"}}"#,
    ),
    (
        403,
        r#"{"error":{"code":403,"message":"Generative Language API has not been used in project 1 before or it is disabled.","status":"PERMISSION_DENIED"}}"#,
    ),
    (
        200,
        r#"{"base_resp":{"status_code":1004,"status_msg":"login fail: Please carry the API secret key in the 'Authorization' field of the request header"}}"#,
    ),
    (
        200,
        r#"{"base_resp":{"status_code":2049,"status_msg":"invalid api key"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Authentication Error, Invalid proxy server token passed. Received API Key = sk-...x, Unable to find token in cache or `LiteLLM_VerificationTokenTable`","type":"token_not_found_in_db","param":"key","code":"400"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"无效的令牌 (request id: 2025)","type":"new_api_error"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid API-key provided.","type":"invalid_request_error","code":"invalid_api_key"}}"#,
    ),
];

#[test]
fn the_key_is_wrong() {
    check(Auth, AUTH);
}

const CONTENT_POLICY: &[(u16, &str)] = &[
    (
        400,
        r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please modify your prompt and retry.","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{}}}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a different prompt.","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}"#,
    ),
    (
        400,
        r#"{"error":{"code":"data_inspection_failed","message":"Input data may contain inappropriate content.","param":null,"type":"data_inspection_failed"}}"#,
    ),
    (
        400,
        r#"{"error":{"code":"1301","message":"系统检测到输入或生成内容可能包含不安全或敏感内容，请您避免输入易产生敏感内容的提示语，感谢您的配合。"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Content Exists Risk","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid request: The request was rejected because it was considered high risk","type":"content_filter"}}"#,
    ),
    (
        403,
        r#"{"error":{"message":"acme/x requires moderation on OpenAI. Your input was flagged for \"violence\". No credits were charged.","code":403,"metadata":{"reasons":["violence"],"flagged_input":"x"}}}"#,
    ),
    (
        200,
        r#"{"base_resp":{"status_code":1026,"status_msg":"input new_sensitive"}}"#,
    ),
    (
        403,
        r#"{"code":"The caller does not have permission to execute the specified operation","error":"Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"}"#,
    ),
];

const ACCOUNT_POLICY: &[(u16, &str)] = &[
    (
        404,
        r#"{"error":{"message":"No endpoints found matching your data policy (Free model publication). Configure: https://openrouter.ai/settings/privacy","code":404}}"#,
    ),
    (
        400,
        r#"[{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}]"#,
    ),
];

#[test]
fn the_content_is_refused() {
    check(ContentPolicy, CONTENT_POLICY);
    check(AccountPolicy, ACCOUNT_POLICY);
}

const IMAGE_TOO_LARGE: &[(u16, &str)] = &[
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 7340032 bytes > 5242880 bytes"}}"#,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content.1.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Image size is 25.0MB, but the maximum allowed is 20MB","type":"invalid_request_error","code":"image_too_large"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"<400> InternalError.Algo.InvalidParameter: The image size is too large: file size exceeds 10MB","type":"invalid_request_error"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Multimodal file size is too large","type":"invalid_request_error","code":"invalid_parameter_error"}}"#,
    ),
];

const IMAGES_UNSUPPORTED: &[(u16, &str)] = &[
    (
        400,
        r#"{"error":{"message":"Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, expected `text` at line 1 column 512","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
    ),
    (
        404,
        r#"{"error":{"message":"No endpoints found that support image input","code":404}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid content type. image_url is only supported by certain models.","type":"invalid_request_error","param":"messages.[1].content.[1].type","code":null}}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"acme/x is not a multimodal model None","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        500,
        r#"{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj","type":"server_error"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Image inputs are not supported by this model","type":"invalid_request_error"}}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"At most 0 image(s) may be provided in one request.","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Model does not support images. Please use a model that does.","code":"model_does_not_support_images"}}"#,
    ),
];

const PAYLOAD_TOO_LARGE: &[(u16, &str)] = &[
    (
        413,
        r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
    ),
    (
        413,
        "<html><head><title>413 Request Entity Too Large</title></head></html>",
    ),
    (413, "Request body is too large for the instance type"),
];

#[test]
fn images_and_sizes() {
    check(ImageTooLarge, IMAGE_TOO_LARGE);
    check(ImagesUnsupported, IMAGES_UNSUPPORTED);
    check(PayloadTooLarge, PAYLOAD_TOO_LARGE);
}

const REASONING_REJECTED: &[(u16, &str)] = &[
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.5.content.0: Invalid `signature` in `thinking` block"}}"#,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."}}"#,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.3.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response."}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Item 'rs_68' of type 'reasoning' was provided without its required following item.","type":"invalid_request_error","param":"input","code":null}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"The encrypted content gAAAA... could not be verified. Reason: Encrypted content organization_id did not match the target organization.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Unable to submit request because Thought signature is not valid.","code":400,"status":"INVALID_ARGUMENT"}}"#,
    ),
];

const SCHEMA_REJECTED: &[(u16, &str)] = &[
    (
        400,
        r#"{"error":{"message":"Invalid schema for function 'mcp_x': In context=('properties', 'tags'), array schema missing items.","type":"invalid_request_error","param":"tools[3].function.parameters","code":"invalid_function_parameters"}}"#,
    ),
    (
        400,
        r#"[{"error":{"code":400,"message":"* GenerateContentRequest.tools[0].function_declarations[3].parameters.properties[x].items: missing field.\n","status":"INVALID_ARGUMENT"}}]"#,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"tools.3.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"}}"#,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"tools.12.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid request: tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'properties.x': type is not defined>","type":"invalid_request_error"}}"#,
    ),
    (
        500,
        r#"{"error":{"code":500,"message":"JSON schema conversion failed:\nUnrecognized schema: {\"not\":{}}","type":"server_error"}}"#,
    ),
    (
        400,
        r#"{"error":{"code":400,"message":"Unable to generate parser for this template. Automatic parser generation failed: JSON schema conversion failed: Pattern must start with '^' and end with '$'","type":"invalid_request_error"}}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"Grammar error: Unimplemented keys: [\"pattern\"]","type":"BadRequestError","param":null,"code":400}"#,
    ),
];

#[test]
fn reasoning_and_schemas() {
    check(ReasoningRejected, REASONING_REJECTED);
    check(SchemaRejected, SCHEMA_REJECTED);
}

const FORMAT: &[(u16, &str)] = &[
    (
        400,
        r#"{"error":{"message":"Messages with role 'tool' must be a response to a preceding message with 'tool_calls'","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01. Each `tool_use` block must have a corresponding `tool_result` block in the next message."}}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"Unexpected role 'user' after role 'tool'","type":"invalid_request_message_order","param":null,"code":"3230"}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid request: the message at position 8 with role 'assistant' must not be empty","type":"invalid_request_error"}}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.","type":"invalid_request_error","param":"tools[0].function.name","code":"invalid_value"}}"#,
    ),
];

#[test]
fn requests_that_are_wrong_in_themselves() {
    check(Format, FORMAT);
}
