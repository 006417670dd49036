#include "serving/completion.h"

#include <algorithm>

#include "serving/completion_requests.h"

namespace lockstep {
namespace {
struct CompletionRun {
  std::vector<TextStream> texts;  // one a sample; none: nobody wants text, or there is no tokenizer
  std::vector<std::int32_t> ends;
  OnSampleToken on_token;
  OnSampleEnd on_end;

  bool token(std::size_t sample, const GeneratedToken& token) {
    std::string text;
    bool more = true;
    if (!texts.empty() && std::find(ends.begin(), ends.end(), token.id) == ends.end()) {
      text = texts[sample].push(token.id);
      more = !texts[sample].stopped();
    }
    if (on_token) more = on_token(sample, token, std::move(text)) && more;
    return more;
  }
  void end(std::size_t sample, Generation&& generation) {
    CompletionEnd end{{}, generation.finish, std::move(generation)};
    if (!texts.empty()) {
      end.text = texts[sample].flush();
      if (end.finish == FinishReason::length && texts[sample].stopped()) end.finish = FinishReason::stop;
    }
    on_end(sample, std::move(end));
  }
};
}  // namespace

std::vector<std::uint64_t> start_completion(GenerationService& service, const CompletionOrder& order, OnSampleToken on_token, OnSampleEnd on_end) {
  if (order.holds.any()) fail_order(order, "hold", "is not offered here");
  std::vector<Request> requests = requests_of(order, service);
  const auto run = std::make_shared<CompletionRun>(CompletionRun{{}, end_tokens_of(order, service), std::move(on_token), std::move(on_end)});
  if (!order.stops.empty() || (run->on_token && service.model().has_tokenizer())) {
    const auto stops = std::make_shared<const StopStrings>(order.stops);
    run->texts.reserve(requests.size());
    for (const Request& request : requests) {
      run->texts.emplace_back(service.model().tokenizer(), stops, order.special);
      run->texts.back().begin_after(request.prompt);
    }
  }
  GenerationService::OnTokenOf token;
  // Whom nobody listens to takes no turn of the executor.
  if (run->on_token || !run->texts.empty()) token = [run](std::size_t i, const GeneratedToken& t) { return run->token(i, t); };
  return service.generate_all(std::move(requests), std::move(token), [run](std::size_t i, Generation&& g) { run->end(i, std::move(g)); });
}

}  // namespace lockstep
