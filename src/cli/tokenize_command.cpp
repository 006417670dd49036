// `lockstep tokenize`: text to ids, pieces and offsets, or ids to text; for one input, or JSON lines of many.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/hub_name.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "serving/text_stream.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;
constexpr std::size_t kMaxLineBytes = 8 * Tokenizer::kMaxTextBytes;
constexpr std::size_t kMaxIds = std::size_t{1} << 26;

struct TokenizeSettings {
  std::string model;
  std::optional<std::string> text, ids;
  bool add_special = true, parse_special = true, skip_special = false, jsonl = false, json = false;
};

bool parse(const Arguments& arguments, TokenizeSettings& s) {
  OptionTable table("tokenize",
                    "Prints ids, pieces and offsets of a text (--text, or all of stdin), or the text of ids. With --jsonl, one answer for each line "
                    "of stdin: {\"text\":...}, {\"bytes_base64\":...} or {\"ids\":[...]}, with \"add_special\", \"parse_special\" and \"skip_special\" "
                    "as the options, \"offsets\":false for ids alone, \"stream\":true for the parts that a stream of the ids would give, "
                    "\"time\":true for the seconds of the call.",
                    {"lockstep tokenize --model models/countdown-glm --text \"3 7 12=48:\"", "lockstep tokenize --model models/countdown-glm --ids \"3 109 7\"",
                     "lockstep tokenize --model models/countdown-glm --jsonl < requests.jsonl"});
  table.model("model", &s.model, "Model folder (tokenizer.json, or a rank file of tiktoken), GGUF file, or a tokenizer.json").required();
  table.text("text", &s.text, "TEXT", "Text to encode (default: stdin)");
  table.text("ids", &s.ids, "IDS", "Ids to decode, such as \"1 5 7\"");
  table.flag("add-special", &s.add_special, "Add the tokens that the tokenizer puts around a text");
  table.refused("with --ids", [&s] { return s.ids.has_value(); });
  table.flag("parse-special", &s.parse_special, "Special tokens written out in the text become their ids");
  table.refused("with --ids", [&s] { return s.ids.has_value(); });
  table.flag("skip-special", &s.skip_special, "Leave special tokens out of decoded text");
  table.refused("without --ids or --jsonl", [&s] { return !s.ids && !s.jsonl; });
  table.flag("jsonl", &s.jsonl, "Answer JSON lines of stdin").command_line_only();
  add_json_option(table, &s.json);
  table.refused("with --jsonl", [&s] { return s.jsonl; });
  table.accept_config();
  if (!table.parse(arguments)) return false;
  if (s.text && s.ids) throw UsageError("--text and --ids cannot go together");
  if (s.jsonl && (s.text || s.ids)) throw UsageError("--jsonl reads stdin, and --text and --ids cannot go with it");
  return true;
}

// Everything up to `end` (or the end of stdin); false when there is nothing left.
bool read_until(int end, std::size_t most, std::string& text) {
  text.clear();
  int c;
  while ((c = std::getc(stdin)) != EOF) {
    if (c == end) return true;
    if (text.size() == most) fail(ErrorCode::resource_exhausted, "stdin has more than {} bytes{}", most, end == EOF ? "" : " in a line");
    text += static_cast<char>(c);
  }
  throw_if_interrupted();
  return !text.empty();
}

std::vector<std::int32_t> parse_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" ,\t\n", at)) != std::string::npos) {
    const std::size_t end = std::min(text.find_first_of(" ,\t\n", at), text.size());
    const std::string word = text.substr(at, end - at);
    if (word.size() > 9 || word.find_first_not_of("0123456789") != std::string::npos) {
      throw UsageError(fmt::format("--ids has '{}', allowed are numbers of 0 to 999999999 with spaces or commas between", word.substr(0, 60)));
    }
    ids.push_back(std::stoi(word));
    at = end;
  }
  return ids;
}

// One line of --jsonl: the request's keys over the options.
class TokenizeRequest {
 public:
  explicit TokenizeRequest(const nlohmann::json& json) : json_(json) {
    if (!json.is_object()) fail(ErrorCode::invalid_argument, "the line is {}, allowed is an object", json.type_name());
    const std::vector<std::string> known = {"text", "bytes_base64", "ids", "add_special", "parse_special", "skip_special", "offsets", "stream", "time"};
    for (const auto& item : json.items()) {
      if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
        fail(ErrorCode::invalid_argument, "'{}' is no key of a request{}", item.key(), did_you_mean(item.key(), known));
      }
    }
    if (json.contains("text") + json.contains("bytes_base64") + json.contains("ids") != 1) {
      fail(ErrorCode::invalid_argument, "exactly one of text, bytes_base64 and ids is needed");
    }
  }
  bool flag(const char* key, bool otherwise) const {
    const auto it = json_.find(key);
    if (it == json_.end()) return otherwise;
    if (!it->is_boolean()) fail(ErrorCode::invalid_argument, "{} is {}, allowed is true or false", key, it->type_name());
    return it->get<bool>();
  }
  bool has_ids() const { return json_.contains("ids"); }
  std::vector<std::int32_t> ids() const {
    const nlohmann::json& value = json_.at("ids");
    if (!value.is_array() || value.size() > kMaxIds)
      fail(ErrorCode::invalid_argument, "ids is {}, allowed is an array of at most {}", value.type_name(), kMaxIds);
    std::vector<std::int32_t> ids;
    for (const auto& id : value) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < INT32_MIN || id.get<std::int64_t>() > INT32_MAX) {
        fail(ErrorCode::invalid_argument, "ids[{}] is {}, allowed is an integer of 32 bits", ids.size(), id.dump());
      }
      ids.push_back(id.get<std::int32_t>());
    }
    return ids;
  }
  std::string bytes() const {
    const char* key = json_.contains("text") ? "text" : "bytes_base64";
    const nlohmann::json& value = json_.at(key);
    if (!value.is_string()) fail(ErrorCode::invalid_argument, "{} is {}, allowed is a string", key, value.type_name());
    const auto& text = value.get_ref<const std::string&>();
    if (json_.contains("text")) return text;
    DecodedBase64 decoded = from_base64(text);
    if (!decoded.fault.empty()) fail(ErrorCode::invalid_argument, "bytes_base64 {}", decoded.fault);
    return std::move(decoded.bytes);
  }

 private:
  const nlohmann::json& json_;
};

Json encoding_json(const Tokenizer& tokenizer, const OffsetEncoding& encoding) {
  Json json{{"ids", encoding.ids}, {"tokens", Json::array()}, {"offsets", Json::array()}};
  for (const std::int32_t id : encoding.ids) json["tokens"].push_back(tokenizer.token_text(id));
  for (const CharacterRange& range : encoding.offsets) json["offsets"].push_back({range.begin, range.end});
  return json;
}

Json answer(const Tokenizer& tokenizer, const TokenizeSettings& s, const TokenizeRequest& request) {
  Json json;
  const auto timed = [&](auto&& work) {
    const auto start = std::chrono::steady_clock::now();
    auto result = work();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (request.flag("time", false)) json["seconds"] = seconds.count();
    return result;
  };
  if (request.has_ids()) {
    const auto ids = request.ids();
    const bool skip = request.flag("skip_special", s.skip_special);
    if (request.flag("stream", false)) {
      Detokenizer detokenizer(tokenizer, skip);
      json["parts"] = Json::array();
      for (const std::int32_t id : ids) json["parts"].push_back(detokenizer.push(id));
      json["parts"].push_back(detokenizer.flush());
    } else {
      json["text"] = timed([&] { return tokenizer.decode(ids, skip); });
    }
    return json;
  }
  const std::string text = request.bytes();
  const bool add = request.flag("add_special", s.add_special), parse = request.flag("parse_special", s.parse_special);
  if (request.flag("offsets", true)) {
    const OffsetEncoding encoding = timed([&] { return tokenizer.encode_with_offsets(text, add, parse); });
    json.update(encoding_json(tokenizer, encoding));
  } else {
    json["ids"] = timed([&] { return tokenizer.encode(text, add, parse); });
  }
  return json;
}

void answer_lines(const Tokenizer& tokenizer, const TokenizeSettings& s) {
  std::string line;
  while (read_until('\n', kMaxLineBytes, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Json json;
    try {
      const nlohmann::json parsed = nlohmann::json::parse(line);
      json = answer(tokenizer, s, TokenizeRequest(parsed));
    } catch (const nlohmann::json::exception& e) {
      json = {{"error", fmt::format("the line is not JSON: {}", e.what())}};
    } catch (const Error& e) {
      json = {{"error", e.what()}};
    }
    std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    std::fflush(stdout);
    throw_if_interrupted();
  }
}
}  // namespace

// A folder's, a GGUF file's, or a tokenizer.json.
static std::shared_ptr<const Tokenizer> opened_tokenizer(const std::string& model) {
  std::error_code error;
  if (std::filesystem::is_regular_file(model, error) && !is_gguf_file(model)) return std::make_shared<const Tokenizer>(Tokenizer::from_file(model));
  if (auto tokenizer = load_tokenizer(model)) return tokenizer;
  return std::make_shared<const Tokenizer>(Tokenizer::from_folder(std::filesystem::path(model)));  // says what is missing
}

int tokenize_command(const Arguments& arguments) {
  TokenizeSettings s;
  if (!parse(arguments, s)) return kExitOk;
  install_interrupt_handlers();
  const std::shared_ptr<const Tokenizer> opened = opened_tokenizer(s.model);
  const Tokenizer& tokenizer = *opened;
  if (s.jsonl) {
    answer_lines(tokenizer, s);
    return kExitOk;
  }
  if (s.ids) {
    const std::string text = tokenizer.decode(parse_ids(*s.ids), s.skip_special);
    std::printf("%s\n", s.json ? Json{{"text", text}}.dump().c_str() : text.c_str());
    return kExitOk;
  }
  std::string text;
  if (s.text) text = *s.text;
  else read_until(EOF, Tokenizer::kMaxTextBytes, text);
  const OffsetEncoding encoding = tokenizer.encode_with_offsets(text, s.add_special, s.parse_special);
  if (s.json) {
    std::printf("%s\n", encoding_json(tokenizer, encoding).dump().c_str());
    return kExitOk;
  }
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    const auto [begin, end] = encoding.offsets[i];
    std::printf("%8d  %-24s %zu-%zu\n", encoding.ids[i], Json(tokenizer.token_text(encoding.ids[i])).dump().c_str(), begin, end);
  }
  return kExitOk;
}

}  // namespace lockstep
