// Runs POST /v1/chat/completions: messages become tokens, tools and formats become parsers and constraints, and the completion starts. Any thread.
//   answer_chat(service, decode_chat(body), owner, responder, long_writer);
#pragma once
#include "api/exchange.h"
#include "api/openai/answer_writer.h"
#include "api/openai/chat_request.h"

namespace lockstep {

class Worker;
class HeldStreams;

// Makes the writer of another protocol's answer; empty: a chat completion is written.
using MakeChatWriter = std::function<std::unique_ptr<AnswerWriter>()>;

// `long_writer` and `streams` as AnswerOrder's, `owner` as answer_completion's. Errors as AnswerRun::start; then the responder has not been used.
void answer_chat(const std::shared_ptr<GenerationService>& service, ChatRequest request, const std::string& owner, const std::shared_ptr<Responder>& responder,
                 const std::weak_ptr<Worker>& long_writer, const MakeChatWriter& make_writer = {}, const std::weak_ptr<HeldStreams>& streams = {});

// The token ids of the prompt. RequestError with the field messages where the chat template refuses them.
std::vector<std::int32_t> chat_prompt_ids(const GenerationService& service, const ChatPrompt& prompt);

}  // namespace lockstep
