#include "text/tokenizer/post_processor.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/json_object.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::json;

namespace {
constexpr std::size_t kMaxProcessorSteps = 64, kMaxAdded = 64;

// The ids that a part of a template stands for; false when it is the place of the text itself.
bool read_template_part(const json& value, const std::string& where, const json& special_tokens, std::vector<std::int32_t>& ids) {
  JsonObject part(value, where);
  if (part.has("Sequence")) {
    JsonObject sequence(part.object("Sequence"), part.path("Sequence"));
    if (sequence.text("id") != "A") fail(ErrorCode::unsupported, "{} is not A, supported is A alone", sequence.path("id"));
    sequence.integer("type_id", 0, 1 << 16);
    sequence.finish();
    part.finish();
    return false;
  }
  JsonObject special(part.object("SpecialToken"), part.path("SpecialToken"));
  const std::string name = special.text("id");
  special.integer("type_id", 0, 1 << 16);
  special.finish();
  part.finish();
  const auto found = special_tokens.find(name);
  if (found == special_tokens.end()) {
    fail(ErrorCode::corrupt_file, "{} is '{}', which post_processor.special_tokens lacks", special.path("id"), utf8_excerpt(name));
  }
  JsonObject entry(*found, "post_processor.special_tokens." + utf8_excerpt(name));
  entry.any("id"), entry.any("tokens");
  for (const json& id : entry.array("ids")) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > static_cast<std::uint64_t>(Bpe::kMaxId)) {
      fail(ErrorCode::corrupt_file, "{} has {}, allowed is 0 to {}", entry.path("ids"), json_excerpt(id), Bpe::kMaxId);
    }
    ids.push_back(id.get<std::int32_t>());
  }
  entry.finish();
  if (ids.size() > kMaxAdded) fail(ErrorCode::unsupported, "{} adds more than {} tokens", where, kMaxAdded);
  return true;
}

// A space, or what stands for it in the byte alphabet.
bool is_space(std::uint32_t c) { return c == 0x120 || is_white_space(c); }
}  // namespace

PostProcessor PostProcessor::from_json(const json& value) {
  PostProcessor result;
  if (!value.is_null()) result.read(value, "post_processor", 0);
  for (const Step& step : result.steps_) {
    result.prefix_.insert(result.prefix_.begin(), step.before.begin(), step.before.end());
    result.suffix_.insert(result.suffix_.end(), step.after.begin(), step.after.end());
  }
  return result;
}

PostProcessor PostProcessor::of_prefix(std::vector<std::int32_t> prefix) {
  PostProcessor result;
  result.prefix_ = prefix;
  result.steps_.push_back({false, false, std::move(prefix), {}});
  return result;
}

void PostProcessor::read(const json& value, const std::string& where, int depth) {
  JsonObject object(value, where);
  const std::string type = object.text("type");
  if (type == "ByteLevel") {
    Step step;
    step.prefix_space = object.flag("add_prefix_space", true);
    step.trims = object.flag("trim_offsets", true);
    object.flag("use_regex", true);  // the pre-tokenizer's concern
    steps_.push_back(std::move(step));
  } else if (type == "Sequence" && depth < 2) {
    const json& parts = object.array("processors");
    if (parts.size() > kMaxProcessorSteps) fail(ErrorCode::unsupported, "{} has {} steps, allowed is at most {}", where, parts.size(), kMaxProcessorSteps);
    for (std::size_t i = 0; i < parts.size(); ++i) read(parts[i], fmt::format("{}.processors[{}]", where, i), depth + 1);
  } else if (type == "TemplateProcessing") {
    object.any("pair");  // texts in pairs are not offered
    object.array("single"), object.object("special_tokens");
    read_template(value, where);
  } else {
    fail(ErrorCode::unsupported, "{}.type is '{}', supported is ByteLevel, TemplateProcessing, Sequence or null", where, utf8_excerpt(type));
  }
  object.finish();
  if (steps_.size() > kMaxProcessorSteps) fail(ErrorCode::unsupported, "post_processor has more than {} steps", kMaxProcessorSteps);
}

void PostProcessor::read_template(const json& value, const std::string& where) {
  Step step;
  bool seen = false;
  const json& single = value["single"];
  for (std::size_t i = 0; i < single.size(); ++i) {
    const std::string part = fmt::format("{}.single[{}]", where, i);
    if (!read_template_part(single[i], part, value["special_tokens"], seen ? step.after : step.before)) {
      if (seen) fail(ErrorCode::unsupported, "{} is the text a second time, supported is once", part);
      seen = true;
    }
  }
  if (!seen) fail(ErrorCode::unsupported, "{}.single lacks the text (Sequence A)", where);
  steps_.push_back(std::move(step));
}

void PostProcessor::apply(std::vector<Token>& tokens, bool add_special, const std::function<std::string_view(std::int32_t)>& text_of) const {
  for (const Step& step : steps_) {
    if (step.trims) trim(tokens, step.prefix_space);
    if (!add_special) continue;
    const auto added = [&](const std::vector<std::int32_t>& ids) {
      std::vector<Token> result;
      for (const std::int32_t id : ids) result.push_back({id, text_of(id), {}});
      return result;
    };
    const std::vector<Token> before = added(step.before), after = added(step.after);
    tokens.insert(tokens.begin(), before.begin(), before.end());
    tokens.insert(tokens.end(), after.begin(), after.end());
  }
}

// The rules are those of process_offsets in Hugging Face tokenizers, whose prefix space takes no part of the input.
void PostProcessor::trim(std::vector<Token>& tokens, bool prefix_space) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    CharacterRange& offsets = tokens[i].offsets;
    std::size_t characters = 0, leading = 0, trailing = 0;
    for (std::string_view rest = tokens[i].text; !rest.empty();) {
      const Utf8Unit unit = utf8_front(rest);
      rest.remove_prefix(unit.bytes);
      const bool space = is_space(unit.codepoint);
      if (space && leading == characters) ++leading;
      trailing = space ? trailing + 1 : 0;
      ++characters;
    }
    if (leading > 0) {
      const bool is_first = i == 0 || offsets.begin == 0;
      if (is_first && prefix_space && leading == 1) leading = 0;
      offsets.begin = std::min(offsets.begin + leading, offsets.end);
    }
    if (trailing > 0 && offsets.end >= trailing) offsets.end = std::max(offsets.end - trailing, offsets.begin);
  }
}

}  // namespace lockstep
