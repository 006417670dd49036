// The part of AnswerRun (api/openai/answer_run.h) for answers that are held on the way.
#include "api/json_fields.h"
#include "api/openai/answer_run.h"

namespace lockstep {

std::uint64_t AnswerRun::start_held() {
  const auto streams = order_.hold.streams.lock();
  if (!streams) throw Error(ErrorCode::cancelled, "the server is stopping");
  const auto self = shared_from_this();
  const auto held = std::make_shared<HeldCompletion>(
      service_, order_.completion,
      HeldCompletion::Callbacks{.on_token = [self](const GeneratedToken& token, const std::string& text) { return self->on_token(0, token, text); },
                                .on_hold = [self](const Hold& hold) { return self->on_hold(hold), std::optional<HoldAction>(); },
                                .on_resumed = [self](const HoldOutcome& outcome) { self->on_resumed(outcome); },
                                .on_end = [self](CompletionEnd&& end) { self->on_end(0, std::move(end)); }});
  usage_.holds = true;
  streams->add(head_.id, order_.hold.owner, order_.hold.seconds, held);
  try {
    return held->start();
  } catch (...) {
    streams->remove(head_.id);
    throw;
  }
}

void AnswerRun::on_hold(const Hold& hold) {
  if (failed_) return;
  Json notice{{"id", head_.id},
              {"state", "held"},
              {"position", hold.position},
              {"attempt", hold.attempt},
              {"at", hold.found.empty() ? "tokens" : "string"},
              {"seconds", order_.hold.seconds}};
  if (!hold.found.empty()) notice["string"] = hold.found;
  notices_.push_back({notice.dump(-1, ' ', false, Json::error_handler_t::replace)});
  if (const auto streams = order_.hold.streams.lock()) streams->held(head_.id, hold.number, hold.position);
  show(0);
}

// After a roll-back: drops what was not sent yet, parses the text that stands anew, and sends a notice with it.
void AnswerRun::on_resumed(const HoldOutcome& outcome) {
  if (const auto streams = order_.hold.streams.lock()) streams->resumed(head_.id);
  if (failed_ || outcome.kind != HoldAction::Kind::roll_back) return;
  usage_.rolled_back += outcome.rolled_back;
  usage_.put_in += std::ssize(outcome.put_in);
  Json notice{{"id", head_.id},
              {"state", "rolled_back"},
              {"position", outcome.position},
              {"attempt", outcome.attempt},
              {"rolled_back", outcome.rolled_back},
              {"token_ids", outcome.put_in},
              {"text", outcome.text}};
  Choice& choice = choices_[0];
  choice.delta = {};
  ChoiceDelta all;
  if (order_.make_parser) {
    choice.parser = order_.make_parser();
    choice.parser->push(outcome.text, all);
    notice["message"] = {{"role", "assistant"}, {"reasoning_content", all.reasoning}, {"content", all.content}};
    choice.called_tools = !all.tool_calls.empty();
    for (ToolCallDelta& call : all.tool_calls) {
      if (call.id.empty()) call.id = call_id(0, call.index);
      notice["message"]["tool_calls"].push_back(
          {{"index", call.index}, {"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
  } else {
    all.content = outcome.text;
  }
  if (choice.characters) {
    choice.characters.emplace(service_->model().tokenizer(), order_.completion.special == SpecialText::hidden);
    choice.characters->begin_after(prompt_of(0));
    choice.offset = 0;
    for (const std::int32_t id : outcome.tokens) choice.offset += count_characters(choice.characters->push(id));
  }
  notices_.push_back({notice.dump(-1, ' ', false, Json::error_handler_t::replace), outcome.tokens, std::move(all)});
  show(0);
}

}  // namespace lockstep
