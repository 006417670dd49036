#include "checkpoint/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/choice.h"
#include "base/error.h"
#include "checkpoint/gguf_vocabulary.h"
#include "checkpoint/json_file.h"
#include "checkpoint/tensor_file.h"
#include "text/tokenizer/split_patterns.h"

namespace lockstep {

namespace {
// What "tokenizer.ggml.pre" stands for.
struct PreTokenizerRow {
  std::string_view name;
  std::vector<const char*> splits;  // one after another; none: the byte level's own pattern, GPT-2's
  bool digits = false;              // first every digit alone
  bool nfc = false;                 // text is composed first
  bool whole_words = false;         // a piece that is a token is that token, whatever the merges say
};

const std::vector<PreTokenizerRow>& pre_tokenizers() {
  static const std::vector<PreTokenizerRow> rows = [] {
    std::vector<PreTokenizerRow> all = {
        {.name = "gpt-2"},
        {.name = "smollm", .digits = true},
        {.name = "deepseek-v3", .splits = {kSplitDeepSeekDigits, kSplitDeepSeekCjk, kSplitDeepSeekRest}},
        {.name = "tekken", .splits = {kSplitTekken}, .whole_words = true},
        {.name = "qwen2", .splits = {kSplitOneDigit}, .nfc = true},
        {.name = "deepseek-r1-qwen", .splits = {kSplitOneDigit}},
        {.name = "gpt-4o", .splits = {kSplitLlama4}},
        {.name = "llama4", .splits = {kSplitLlama4}},
    };
    for (const char* name : {"llama3", "llama-v3", "llama-bpe"}) all.push_back({.name = name, .splits = {kSplitThreeDigits}, .whole_words = true});
    for (const char* name : {"falcon3", "dbrx", "smaug-bpe"}) all.push_back({.name = name, .splits = {kSplitThreeDigits}});
    return all;
  }();
  return rows;
}

const PreTokenizerRow& pre_tokenizer_row(const GgufFile& file) {
  const std::string pre = file.text("tokenizer.ggml.pre");
  std::vector<std::string> known;
  for (const PreTokenizerRow& row : pre_tokenizers()) {
    if (row.name == pre) return row;
    known.emplace_back(row.name);
  }
  std::sort(known.begin(), known.end());
  fail(ErrorCode::unsupported, "'{}': 'tokenizer.ggml.pre' is {}, {}", file.label(), quoted_name(pre), allowed_are(pre.substr(0, 60), known));
}

Json byte_level(bool own_pattern) { return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own_pattern}}; }

Json pre_tokenizer(const PreTokenizerRow& row) {
  Json steps = Json::array();
  if (row.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const char* split : row.splits) steps.push_back({{"type", "Split"}, {"pattern", {{"Regex", split}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back(byte_level(row.splits.empty()));
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// Tokens that text may name in full: those that control the model, and those that users defined.
Json added_tokens(const GgufVocabulary& vocabulary) {
  Json added = Json::array();
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const GgufTokenKind kind = vocabulary.kinds[i];
    if (kind != GgufTokenKind::control && kind != GgufTokenKind::user_defined && kind != GgufTokenKind::unknown) continue;
    if (vocabulary.byte_level && kind == GgufTokenKind::unknown) continue;
    added.push_back({{"id", i},
                     {"content", vocabulary.tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", kind != GgufTokenKind::user_defined}});
  }
  return added;
}

// What stands around a text: the beginning and the end token, where the file asks for them.
Json post_processor(const GgufFile& file, const GgufVocabulary& vocabulary) {
  const bool begin = file.flag("tokenizer.ggml.add_bos_token", !vocabulary.byte_level), end = file.flag("tokenizer.ggml.add_eos_token", false);
  Json tokens = Json::object(), single = Json::array(), pair = Json::array();
  const auto put = [&](const char* key, Json& list, int sequence) {
    const std::int32_t id = vocabulary.id_of(file, key);
    const std::string& text = vocabulary.tokens[static_cast<std::size_t>(id)];
    list.push_back({{"SpecialToken", {{"id", text}, {"type_id", sequence}}}});
    tokens[text] = {{"id", text}, {"ids", Json::array({id})}, {"tokens", Json::array({text})}};
  };
  if (!begin && !end) return nullptr;
  for (int sequence = 0; sequence < 2; ++sequence)
    for (Json* list : {&single, &pair}) {
      if (sequence == 1 && list == &single) continue;
      if (begin) put("bos_token_id", *list, sequence);
      list->push_back({{"Sequence", {{"id", sequence == 0 ? "A" : "B"}, {"type_id", sequence}}}});
      if (end) put("eos_token_id", *list, sequence);
    }
  return {{"type", "TemplateProcessing"}, {"single", std::move(single)}, {"pair", std::move(pair)}, {"special_tokens", std::move(tokens)}};
}

// An object of so many keys is filled without looking each up among all others.
Json vocabulary_object(const GgufVocabulary& vocabulary) {
  Json json = Json::object();
  auto& members = json.get_ref<Json::object_t&>();
  members.reserve(vocabulary.tokens.size());
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i)
    if (!vocabulary.filler(i)) members.emplace_back(vocabulary.tokens[i], Json(i));
  return json;
}

Json bpe_model(Json unknown, bool fuse_and_fall_back, bool whole_words, Json vocabulary, Json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", std::move(unknown)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", fuse_and_fall_back},
          {"byte_fallback", fuse_and_fall_back},
          {"ignore_merges", whole_words},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

Json document(const GgufFile& file, const GgufVocabulary& vocabulary, Json normalizer, Json pre_tokenizer, Json decoder, Json model) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens(vocabulary)},
          {"normalizer", std::move(normalizer)},
          {"pre_tokenizer", std::move(pre_tokenizer)},
          {"post_processor", post_processor(file, vocabulary)},
          {"decoder", std::move(decoder)},
          {"model", std::move(model)}};
}

Json byte_level_document(const GgufFile& file, const GgufVocabulary& vocabulary) {
  const PreTokenizerRow& row = pre_tokenizer_row(file);
  Json merges = Json::array();
  for (std::string& merge : file.texts("tokenizer.ggml.merges")) merges.push_back(std::move(merge));
  return document(file, vocabulary, row.nfc ? Json{{"type", "NFC"}} : Json(nullptr), pre_tokenizer(row), byte_level(true),
                  bpe_model(nullptr, false, row.whole_words, vocabulary_object(vocabulary), std::move(merges)));
}

// SentencePiece's BPE as transformers has it: spaces are U+2581, one is put in front of a text, and a character without a token becomes the tokens of its
// bytes.
Json scored_document(const GgufFile& file, const GgufVocabulary& vocabulary) {
  constexpr const char* kMark = "\u2581";
  const bool prefix = file.flag("tokenizer.ggml.add_space_prefix", true);
  Json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kMark}}}, {"content", " "}}, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  const auto unknown = std::find(vocabulary.kinds.begin(), vocabulary.kinds.end(), GgufTokenKind::unknown);
  const Json unknown_text =
      unknown == vocabulary.kinds.end() ? Json(nullptr) : Json(vocabulary.tokens[static_cast<std::size_t>(unknown - vocabulary.kinds.begin())]);
  return document(file, vocabulary, nullptr, {{"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", prefix ? "first" : "never"}, {"split", false}},
                  {{"type", "Sequence"}, {"decoders", std::move(decoders)}},
                  bpe_model(unknown_text, true, false, vocabulary_object(vocabulary), merges_by_score(file, vocabulary)));
}

struct NamedTemplate {
  std::string name, source;
};
std::vector<NamedTemplate> chat_templates(const GgufFile& file) {
  constexpr const char* kKey = "tokenizer.chat_template";
  std::vector<NamedTemplate> all;
  if (auto source = file.text_if(kKey)) all.push_back({"default", std::move(*source)});
  if (auto source = file.text_if(std::string(kKey) + ".tool_use")) all.push_back({"tool_use", std::move(*source)});
  return all;
}
}  // namespace

bool has_gguf_tokenizer(const GgufFile& file) {
  const std::string model = file.text_if("tokenizer.ggml.model").value_or("none");
  return model != "none" && model != "no_vocab";
}

std::string gguf_tokenizer(const GgufFile& file) {
  const std::string model = file.text("tokenizer.ggml.model");
  if (model != "gpt2" && model != "llama") {
    const std::vector<std::string> known = {"gpt2", "llama"};
    fail(ErrorCode::unsupported, "'{}': 'tokenizer.ggml.model' is {}, allowed are gpt2 and llama{}", file.label(), quoted_name(model),
         did_you_mean(model.substr(0, 60), known));
  }
  const GgufVocabulary vocabulary = read_gguf_vocabulary(file, model == "gpt2");
  try {
    return (model == "gpt2" ? byte_level_document(file, vocabulary) : scored_document(file, vocabulary)).dump(2, ' ', false) + "\n";
  } catch (const Json::type_error&) {
    fail(ErrorCode::corrupt_file, "'{}': a token or a merge is no UTF-8", file.label());
  }
}

Json gguf_tokenizer_config(const GgufFile& file) {
  const GgufVocabulary vocabulary = read_gguf_vocabulary(file, file.text("tokenizer.ggml.model") == "gpt2");
  Json json = Json::object();
  for (const auto& [role, key] :
       {std::pair{"bos_token", "bos_token_id"}, {"eos_token", "eos_token_id"}, {"pad_token", "padding_token_id"}, {"unk_token", "unknown_token_id"}})
    if (file.has(std::string("tokenizer.ggml.") + key)) json[role] = vocabulary.tokens[static_cast<std::size_t>(vocabulary.id_of(file, key))];
  json["add_prefix_space"] = false;
  json["clean_up_tokenization_spaces"] = false;
  const std::vector<NamedTemplate> templates = chat_templates(file);
  if (templates.size() == 1) json["chat_template"] = templates[0].source;
  else
    for (const NamedTemplate& one : templates) json["chat_template"].push_back({{"name", one.name}, {"template", one.source}});
  if (const auto context = file.integer_if(file.text("general.architecture") + ".context_length", 1, INT64_MAX)) json["model_max_length"] = *context;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  return json;
}

std::optional<std::string> gguf_chat_template(const GgufFile& file) {
  std::vector<NamedTemplate> templates = chat_templates(file);
  if (templates.size() != 1 || templates[0].name != "default") return {};
  return std::move(templates[0].source);
}

}  // namespace lockstep
