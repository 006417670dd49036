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
      HeldCompletion::Callbacks{
          .on_token = [self](const OnExecutor& on, const GeneratedToken& token, const std::string& text) { return self->on_token(on, 0, token, text); },
          .on_hold = [self](const OnExecutor& on, const Hold& hold) { return self->on_hold(on, hold), std::optional<HoldAction>(); },
          .on_resumed = [self](const OnExecutor& on, const HoldOutcome& outcome) { self->on_resumed(on, outcome); },
          .on_end = [self](const OnExecutor& on, CompletionEnd&& end) { self->on_end(on, 0, std::move(end)); }});
  streams->add(id_, order_.hold.owner, order_.hold.seconds, held);
  try {
    return held->start();
  } catch (...) {
    streams->remove(id_);
    throw;
  }
}

void AnswerRun::on_hold(const OnExecutor& on, const Hold& hold) {
  Answer& answer = answer_.at(on);
  if (answer.failed) return;
  Json notice{{"id", id_},
              {"state", "held"},
              {"position", hold.position},
              {"attempt", hold.attempt},
              {"at", hold.found.empty() ? "tokens" : "string"},
              {"seconds", order_.hold.seconds}};
  if (!hold.found.empty()) notice["string"] = hold.found;
  answer.notices.push_back({notice.dump(-1, ' ', false, Json::error_handler_t::replace)});
  if (const auto streams = order_.hold.streams.lock()) streams->held(id_, hold.number, hold.position);
  show(on, 0);
}

// After a roll-back: drops what was not sent yet, parses the text that stands anew, and sends a notice with it.
void AnswerRun::on_resumed(const OnExecutor& on, const HoldOutcome& outcome) {
  if (const auto streams = order_.hold.streams.lock()) streams->resumed(id_);
  Answer& answer = answer_.at(on);
  if (answer.failed || outcome.kind != HoldAction::Kind::roll_back) return;
  answer.usage.rolled_back += outcome.rolled_back;
  answer.usage.put_in += std::ssize(outcome.put_in);
  Json notice{{"id", id_},
              {"state", "rolled_back"},
              {"position", outcome.position},
              {"attempt", outcome.attempt},
              {"rolled_back", outcome.rolled_back},
              {"token_ids", outcome.put_in},
              {"text", outcome.text}};
  Choice& choice = answer.choices[0];
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
  answer.notices.push_back({notice.dump(-1, ' ', false, Json::error_handler_t::replace), outcome.tokens, std::move(all)});
  show(on, 0);
}

}  // namespace lockstep
