#include "cli/render_train.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "api/openai/chat_messages.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "runs/sft_data.h"
#include "runs/transcript_text.h"
#include "serving/loading.h"

namespace lockstep {
namespace {
// Text that is safe for a terminal: without control characters.
std::string harmless(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) c = '?';
  return text;
}

// Trained tokens green, others dim.
void print_in_colour(const WeightedTokens& data, const Tokenizer& tokenizer) {
  for (std::size_t begin = 0; begin < data.tokens.size();) {
    const bool learned = begin > 0 && data.weights[begin] != 0;
    std::size_t end = begin + 1;
    while (end < data.tokens.size() && (data.weights[end] != 0) == learned) ++end;
    const std::string text = harmless(tokenizer.decode(std::span(data.tokens).subspan(begin, end - begin), false));
    std::printf("%s%s\x1b[0m", learned ? "\x1b[1;32m" : "\x1b[2m", text.c_str());
    begin = end;
  }
  std::fputs("\n\n", stdout);
}
}  // namespace

int show_training_data(const ShownTrainingData& wanted) {
  if (wanted.model.empty()) throw UsageError("--train needs --model: its tokenizer makes the tokens");
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(wanted.model);
  if (!tokenizer) fail(ErrorCode::not_found, "'{}' has no tokenizer.json, so there is no text to show", wanted.model);
  const ChatData data = open_chat_data(wanted.model, tokenizer, wanted.end_token, wanted.template_file, {chat_messages, chat_tools});
  const bool colours = isatty(STDOUT_FILENO) != 0;
  std::int64_t lines = 0, tokens = 0, learned = 0, untrained = 0;
  each_training_line(wanted.file, data, [&](std::int64_t number, const WeightedTokens& line) {
    const auto here = static_cast<std::int64_t>(line.weights.size()) - 1 - std::count(line.weights.begin() + 1, line.weights.end(), 0.0f);
    ++lines;
    tokens += static_cast<std::int64_t>(line.tokens.size());
    learned += here;
    untrained += here == 0;
    const nlohmann::ordered_json pieces = token_pieces(*tokenizer, line.tokens);
    if (wanted.json) {
      nlohmann::ordered_json weights = line.weights;
      weights[0] = 0;  // nothing predicts the first token
      std::printf("%s\n", nlohmann::ordered_json{{"line", number}, {"tokens", line.tokens}, {"weights", weights}, {"pieces", pieces}}
                              .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
                              .c_str());
      return;
    }
    std::printf("line %lld: %zu tokens, %lld learned\n", static_cast<long long>(number), line.tokens.size(), static_cast<long long>(here));
    if (colours) return print_in_colour(line, *tokenizer);
    for (std::size_t i = 0; i < line.tokens.size(); ++i) {
      const std::string weight = i == 0 || line.weights[i] == 0 ? "-" : line.weights[i] == 1 ? "+" : fmt::format("{}", line.weights[i]);
      std::printf("%s %d %s\n", weight.c_str(), line.tokens[i], pieces[i].dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    }
  });
  if (!wanted.json)
    std::printf("%lld lines, %lld tokens, %lld learned%s\n", static_cast<long long>(lines), static_cast<long long>(tokens), static_cast<long long>(learned),
                untrained > 0 ? fmt::format("; nothing is learned of {} of the lines", untrained).c_str() : "");
  return kExitOk;
}

}  // namespace lockstep
