#include "text/tokenizer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/json_object.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::json;

struct Tokenizer::State {
  Bpe bpe;
  PreTokenizer pre_tokenizer;
  AddedTokens added;
  bool nfc = false;
  std::vector<std::int32_t> prefix, suffix;  // what add_special puts around a text
  std::int32_t id_limit = 0;

  void encode_plain(std::string_view text, std::vector<std::int32_t>& ids) const {
    PreTokenizer::Arena arena;
    for (const std::string_view piece : pre_tokenizer.split(text, arena)) bpe.encode_piece(piece, ids);
  }
};

namespace {
constexpr std::size_t kMaxAddedTokens = 1 << 20;
constexpr std::size_t kMaxAddedBytes = 256;

bool read_normalizer(const json& value, const std::string& where, int depth) {
  if (value.is_null()) return false;
  JsonObject object(value, where);
  const std::string type = object.text("type");
  bool nfc = false;
  if (type == "NFC") {
    nfc = true;
  } else if (type == "Sequence" && depth < 2) {
    const json& parts = object.array("normalizers");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      nfc |= read_normalizer(parts[i], fmt::format("{}.normalizers[{}]", where, i), depth + 1);
    }
  } else {
    fail(ErrorCode::unsupported, "{}.type is '{}', supported is NFC, Sequence or null", where, utf8_excerpt(type));
  }
  object.finish();
  return nfc;
}

void read_decoder(const json& value, const std::string& where, bool& byte_level) {
  if (value.is_null() && where == "decoder") fail(ErrorCode::unsupported, "decoder is null, supported is ByteLevel");
  JsonObject object(value, where);
  const std::string type = object.text("type");
  if (type == "Sequence" && where == "decoder") {
    const json& parts = object.array("decoders");
    for (std::size_t i = 0; i < parts.size(); ++i) read_decoder(parts[i], fmt::format("decoder.decoders[{}]", i), byte_level);
  } else if (type == "ByteLevel" && !byte_level) {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) object.flag(key, true);  // concern encoding
    byte_level = true;
  } else if (type != "Fuse" || !byte_level) {
    fail(ErrorCode::unsupported, "{}.type is '{}', supported is ByteLevel, then at most Fuse", where, utf8_excerpt(type));
  }
  object.finish();
}

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
  return true;
}

void read_post_processor(const json& value, const std::string& where, int depth, std::vector<std::int32_t>& prefix,
                         std::vector<std::int32_t>& suffix) {
  if (value.is_null()) return;
  JsonObject object(value, where);
  const std::string type = object.text("type");
  if (type == "ByteLevel") {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) object.flag(key, true);  // concern offsets
  } else if (type == "Sequence" && depth < 2) {
    const json& parts = object.array("processors");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      read_post_processor(parts[i], fmt::format("{}.processors[{}]", where, i), depth + 1, prefix, suffix);
    }
  } else if (type == "TemplateProcessing") {
    std::vector<std::int32_t> before, after;
    bool seen = false;
    object.any("pair");  // texts in pairs are not offered
    const json& single = object.array("single");
    const json& specials = object.object("special_tokens");
    for (std::size_t i = 0; i < single.size(); ++i) {
      const std::string part = fmt::format("{}.single[{}]", where, i);
      if (!read_template_part(single[i], part, specials, seen ? after : before)) {
        if (seen) fail(ErrorCode::unsupported, "{} is the text a second time, supported is once", part);
        seen = true;
      }
    }
    if (!seen) fail(ErrorCode::unsupported, "{}.single lacks the text (Sequence A)", where);
    prefix.insert(prefix.begin(), before.begin(), before.end());
    suffix.insert(suffix.end(), after.begin(), after.end());
  } else {
    fail(ErrorCode::unsupported, "{}.type is '{}', supported is ByteLevel, TemplateProcessing, Sequence or null", where,
         utf8_excerpt(type));
  }
  object.finish();
}

AddedToken read_added_token(const json& value, const std::string& where) {
  JsonObject object(value, where);
  AddedToken token;
  token.id = static_cast<std::int32_t>(object.integer("id", 0, Bpe::kMaxId));
  token.content = object.text("content");
  if (token.content.empty() || token.content.size() > kMaxAddedBytes) {
    fail(ErrorCode::corrupt_file, "{} has {} bytes, allowed is 1 to {}", object.path("content"), token.content.size(), kMaxAddedBytes);
  }
  token.single_word = object.flag("single_word", false);
  token.lstrip = object.flag("lstrip", false);
  token.rstrip = object.flag("rstrip", false);
  token.special = object.flag("special", false);
  token.normalized = object.flag("normalized", !token.special);
  object.finish();
  return token;
}

// Hugging Face gives an added token the id of its text in the vocabulary, or else the next free one, whatever the file
// says; a file that says something else would mean other ids there than here.
void read_added_tokens(const json& values, const Bpe& bpe, bool nfc, AddedTokens& added, std::int32_t& id_limit) {
  if (values.size() > kMaxAddedTokens) {
    fail(ErrorCode::corrupt_file, "added_tokens has {} entries, allowed is at most {}", values.size(), kMaxAddedTokens);
  }
  std::int32_t largest = -1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    AddedToken token = read_added_token(values[i], where);
    if (added.find(token.content)) {
      fail(ErrorCode::corrupt_file, "{}.content is '{}', which stands there twice", where, utf8_excerpt(token.content));
    }
    const std::int32_t expected = bpe.id_of(token.content).value_or(std::max(bpe.size(), largest + 1));
    if (token.id != expected) {
      fail(ErrorCode::corrupt_file, "{}.id is {} for '{}', allowed is {} (its id in the vocabulary, or the next free one)", where,
           token.id, utf8_excerpt(token.content), expected);
    }
    if (expected < bpe.id_limit() && bpe.text_of(expected) != token.content) {
      fail(ErrorCode::corrupt_file, "{}.id {} is taken by '{}'", where, expected, utf8_excerpt(bpe.text_of(expected)));
    }
    largest = std::max(largest, expected);
    id_limit = std::max(id_limit, expected + 1);
    const std::string found_as = token.normalized && nfc ? utf8_nfc(token.content) : token.content;
    added.add(std::move(token), found_as);
  }
}
}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_file(const std::filesystem::path& path) {
  return with_context(fmt::format("reading {}", path.string()), [&] {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    if (error == std::errc::no_such_file_or_directory) fail(ErrorCode::not_found, "the file is not there");
    if (error) fail(ErrorCode::io, "the file cannot be read: {}", error.message());
    if (bytes > kMaxFileBytes) {
      fail(ErrorCode::resource_exhausted, "the file has {} bytes, allowed is at most {}", bytes, kMaxFileBytes);
    }
    std::string text(bytes, '\0');
    std::ifstream file(path, std::ios::binary);
    if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) fail(ErrorCode::io, "the file cannot be read");
    return from_json(text);
  });
}

Tokenizer Tokenizer::from_json(std::string_view text) {
  if (text.size() > kMaxFileBytes) {
    fail(ErrorCode::resource_exhausted, "tokenizer.json has {} bytes, allowed is at most {}", text.size(), kMaxFileBytes);
  }
  json root;
  try {
    root = json::parse(text);
  } catch (const json::exception& e) {
    fail(ErrorCode::corrupt_file, "tokenizer.json is not JSON: {}", utf8_excerpt(e.what()));
  }
  JsonObject object(root, "");
  object.only("version", "1.0");
  object.any("truncation"), object.any("padding");
  auto state = std::make_unique<State>(State{Bpe::from_json(object.object("model")),
                                             PreTokenizer::from_json(object.any("pre_tokenizer")), {}, {}, {}, {}, {}});
  state->nfc = read_normalizer(object.any("normalizer"), "normalizer", 0);
  bool byte_level = false;
  read_decoder(object.any("decoder"), "decoder", byte_level);
  if (!byte_level) fail(ErrorCode::unsupported, "decoder has no ByteLevel, supported is byte-level BPE only");
  state->id_limit = state->bpe.id_limit();
  if (object.has("added_tokens")) {
    read_added_tokens(object.array("added_tokens"), state->bpe, state->nfc, state->added, state->id_limit);
  }
  object.any("added_tokens");
  read_post_processor(object.any("post_processor"), "post_processor", 0, state->prefix, state->suffix);
  for (const auto* ids : {&state->prefix, &state->suffix}) {
    for (const std::int32_t id : *ids) {
      if (id >= state->id_limit) fail(ErrorCode::corrupt_file, "post_processor adds id {}, which no token has", id);
    }
  }
  object.finish();
  return Tokenizer(std::move(state));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special) const {
  if (text.size() > kMaxTextBytes) {
    fail(ErrorCode::invalid_argument, "text has {} bytes, allowed is at most {}", text.size(), kMaxTextBytes);
  }
  std::string clean;
  if (!utf8_valid(text)) text = clean = utf8_lossy(text);
  std::vector<std::int32_t> ids;
  if (add_special) ids = state_->prefix;
  const auto on_token = [&](std::int32_t id) { ids.push_back(id); };
  const auto on_plain = [&](std::string_view part) { state_->encode_plain(part, ids); };
  const auto on_raw = [&](std::string_view part) {
    std::string composed;
    if (state_->nfc) part = composed = utf8_nfc(part);
    state_->added.scan(part, true, parse_special, on_plain, on_token);
  };
  state_->added.scan(text, false, parse_special, on_raw, on_token);
  if (add_special) ids.insert(ids.end(), state_->suffix.begin(), state_->suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const std::int32_t id : ids) {
    if (!skip_special || !is_special(id)) bytes += token_bytes(id);
  }
  return utf8_lossy(bytes);
}

int Tokenizer::vocab_size() const { return state_->id_limit; }

std::optional<std::int32_t> Tokenizer::token_id(std::string_view token) const {
  if (const AddedToken* added = state_->added.find(token)) return added->id;
  return state_->bpe.id_of(token);
}

std::string Tokenizer::token_text(std::int32_t id) const {
  if (const AddedToken* added = state_->added.find(id)) return added->content;
  return id >= 0 && id < state_->bpe.id_limit() ? state_->bpe.text_of(id) : "";
}

// A token with a character outside the byte alphabet stands for its own text, added or not.
std::string Tokenizer::token_bytes(std::int32_t id) const {
  const std::string text = token_text(id);
  return alphabet_to_bytes(text).value_or(text);
}

bool Tokenizer::is_special(std::int32_t id) const {
  const AddedToken* added = state_->added.find(id);
  return added && added->special;
}

}  // namespace lockstep
