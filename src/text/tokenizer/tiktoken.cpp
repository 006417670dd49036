#include "text/tokenizer/tiktoken.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/base64.h"
#include "base/error.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/json_object.h"
#include "text/tokenizer/split_patterns.h"
#include "text/tokenizer/tokenizer_state.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::json;

namespace {
using Ranks = std::vector<std::pair<std::string, std::int32_t>>;

constexpr std::size_t kMaxRanks = std::size_t{1} << 21, kMaxSpecials = 1 << 16, kMaxSpecialBytes = 256;

using Specials = std::vector<std::pair<std::string, std::int32_t>>;

// Names in the order of their ids, which follow the last rank.
Specials behind_ranks(const std::vector<std::string>& names, std::int32_t first) {
  Specials specials;
  for (const std::string& name : names) specials.emplace_back(name, first++);
  return specials;
}

std::vector<std::string> numbered(std::vector<std::string> names, std::string_view format, int first, int last) {
  for (int i = first; i <= last; ++i) names.push_back(fmt::format(fmt::runtime(format), i));
  return names;
}

std::vector<std::string> llama3_specials() {
  return numbered({"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>",
                   "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>", "<|image|>"},
                  "<|reserved_special_token_{}|>", 2, 245);
}

std::vector<std::string> llama4_specials() {
  std::vector<std::string> names = {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                                    "<|header_start|>",  "<|header_end|>",  "<|eom|>",        "<|eot|>",        "<|step|>"};
  names = numbered(std::move(names), "<|text_post_train_reserved_special_token_{}|>", 0, 5);
  for (const char* name : {"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"}) names.emplace_back(name);
  names = numbered(std::move(names), "<|text_post_train_reserved_special_token_{}|>", 8, 68);
  for (const char* name : {"<|image_start|>", "<|image_end|>"}) names.emplace_back(name);
  names = numbered(std::move(names), "<|vision_reserved_special_token_{}|>", 0, 1);
  for (const char* name : {"<|tile_x_separator|>", "<|tile_y_separator|>"}) names.emplace_back(name);
  names = numbered(std::move(names), "<|vision_reserved_special_token_{}|>", 2, 5);
  names.emplace_back("<|image|>");
  names = numbered(std::move(names), "<|vision_reserved_special_token_{}|>", 6, 6);
  names.emplace_back("<|patch|>");
  names = numbered(std::move(names), "<|vision_reserved_special_token_{}|>", 7, 1047);
  names = numbered(std::move(names), "<|reasoning_reserved_special_token_{}|>", 0, 7);
  for (const char* name : {"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"}) names.emplace_back(name);
  return numbered(std::move(names), "<|reserved_special_token_{}|>", 0, 2047 - static_cast<int>(names.size()));
}

// "added_tokens_decoder": {"151329": {"content": "<|endoftext|>", ...}}.
std::map<std::int32_t, std::string> named_specials(const json& config) {
  std::map<std::int32_t, std::string> named;
  const auto found = config.find("added_tokens_decoder");
  if (found == config.end()) return named;
  if (!found->is_object() || found->size() > kMaxSpecials) {
    fail(ErrorCode::corrupt_file, "added_tokens_decoder is {}, allowed is an object of at most {} entries", json_excerpt(*found), kMaxSpecials);
  }
  for (const auto& [key, value] : found->items()) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const auto content = value.is_object() ? value.find("content") : value.end();
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || !value.is_object() || content == value.end() || !content->is_string()) {
      fail(ErrorCode::corrupt_file, "added_tokens_decoder['{}'] is {}, allowed is an id and an object with \"content\"", utf8_excerpt(key),
           json_excerpt(value));
    }
    named[id] = content->get<std::string>();
  }
  return named;
}

std::int32_t past_ranks(const Ranks& ranks) {
  std::int32_t last = -1;
  for (const auto& [bytes, id] : ranks) last = std::max(last, id);
  return last + 1;
}
}  // namespace

Ranks read_ranks(std::string_view text) {
  Ranks ranks;
  std::size_t line = 0;
  while (!text.empty()) {
    ++line;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty()) continue;
    const std::size_t space = row.find(' ');
    std::int32_t rank = -1;
    const char* last = row.data() + row.size();
    const bool split = space != std::string_view::npos;
    const auto [stop, error] = split ? std::from_chars(row.data() + space + 1, last, rank) : std::from_chars_result{last, std::errc::invalid_argument};
    if (error != std::errc() || stop != last || rank < 0 || rank > Bpe::kMaxId) {
      fail(ErrorCode::corrupt_file, "line {} is '{}', allowed is base64, a space and a rank of 0 to {}", line, utf8_excerpt(row), Bpe::kMaxId);
    }
    if (ranks.size() == kMaxRanks) fail(ErrorCode::corrupt_file, "the file has more than {} ranks", kMaxRanks);
    DecodedBase64 token = from_base64(row.substr(0, space));
    if (!token.fault.empty() || token.bytes.empty()) fail(ErrorCode::corrupt_file, "line {} is not base64 and a rank", line);
    ranks.emplace_back(std::move(token.bytes), rank);
  }
  if (ranks.empty()) fail(ErrorCode::corrupt_file, "the file has no ranks");
  return ranks;
}

TiktokenSettings tiktoken_settings(const Ranks& ranks, const json& config) {
  const std::int32_t first = past_ranks(ranks);
  const auto found = config.find("tokenizer_class");
  const std::string name = config.is_object() && found != config.end() && found->is_string() ? found->get<std::string>() : "";
  if (name == "QWenTokenizer") {
    return {kSplitOneDigit, behind_ranks(numbered({"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, "<|extra_{}|>", 0, 204), first), true, {}};
  }
  if (name == "TikTokenTokenizer") {
    const auto named = named_specials(config);
    Specials specials;
    for (std::int32_t id = first; id < first + 256; ++id) {
      const auto it = named.find(id);
      specials.emplace_back(it == named.end() ? fmt::format("<|reserved_token_{}|>", id) : it->second, id);
    }
    return {kSplitKimi, std::move(specials), false, {}};
  }
  if (name == "ChatGLM4Tokenizer") {
    TiktokenSettings settings{kSplitThreeDigits, {}, false, {}};
    for (const auto& [id, content] : named_specials(config)) settings.specials.emplace_back(content, id);
    for (const char* start : {"[gMASK]", "<sop>"}) {
      const auto it = std::find_if(settings.specials.begin(), settings.specials.end(), [&](const auto& s) { return s.first == start; });
      if (it == settings.specials.end()) fail(ErrorCode::corrupt_file, "added_tokens_decoder lacks '{}', which begins every text", start);
      settings.prefix.push_back(it->second);
    }
    return settings;
  }
  const bool llama = name.empty() || name == "PreTrainedTokenizerFast" || name == "PreTrainedTokenizer";
  if (llama && first == 128000) return {kSplitThreeDigits, behind_ranks(llama3_specials(), first), false, {first}};
  if (llama && first == 200000) return {kSplitLlama4, behind_ranks(llama4_specials(), first), false, {first}};
  fail(ErrorCode::unsupported,
       "a rank file of {} ranks with tokenizer_class '{}' has no known pattern, supported is QWenTokenizer, TikTokenTokenizer, ChatGLM4Tokenizer, "
       "or none with the 128000 ranks of Llama 3 or the 200000 of Llama 4; or a tokenizer.json",
       ranks.size(), utf8_excerpt(name));
}

Tokenizer Tokenizer::from_tiktoken(std::string_view text, const TiktokenSettings& settings) {
  auto state = std::make_unique<State>(State{Bpe::from_ranks(read_ranks(text)),
                                             settings.nfc ? Normalizer::of(NormalForm::nfc) : Normalizer(),
                                             PreTokenizer::of_pattern(settings.pattern),
                                             {},
                                             PostProcessor::of_prefix(settings.prefix),
                                             Decoder::byte_level()});
  state->id_limit = state->bpe.vocabulary().id_limit();
  if (settings.specials.size() > kMaxSpecials) {
    fail(ErrorCode::corrupt_file, "there are {} special tokens, allowed is at most {}", settings.specials.size(), kMaxSpecials);
  }
  for (const auto& [content, id] : settings.specials) {
    if (content.empty() || content.size() > kMaxSpecialBytes) {
      fail(ErrorCode::corrupt_file, "special token {} has {} bytes, allowed is 1 to {}", id, content.size(), kMaxSpecialBytes);
    }
    if (id < 0 || id > Bpe::kMaxId || !state->text_of(id).empty() || state->added.find(content)) {
      fail(ErrorCode::corrupt_file, "special token '{}' has id {}, which is taken or not 0 to {}, or stands there twice", utf8_excerpt(content), id,
           Bpe::kMaxId);
    }
    // Qwen composes the whole text first, special tokens too.
    AddedToken token{.id = id, .content = content, .normalized = settings.nfc, .special = true};
    token.found_as = state->normalizer.apply(content);
    state->added.add(std::move(token));
    state->id_limit = std::max(state->id_limit, id + 1);
  }
  for (const std::int32_t id : settings.prefix) {
    if (state->text_of(id).empty()) fail(ErrorCode::corrupt_file, "the prefix has id {}, which no token has", id);
  }
  return Tokenizer(std::move(state));
}

}  // namespace lockstep
