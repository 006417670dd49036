// Special tokens: however users spell one, in whatever field, only the template's own become ids.
#include "text/template/prompt_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer/normalizer.h"

namespace lockstep {
namespace {
using nlohmann::json;
using nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;
using PromptParts = std::vector<std::pair<std::string, bool>>;  // text, and whether the template wrote it

const json kNfkc = {{"type", "NFKC"}}, kNfc = {{"type", "NFC"}}, kLower = {{"type", "Lowercase"}};
json replaced(const std::string& from, const std::string& to) { return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}}; }
json replace_all(const std::string& regex, const std::string& to) { return {{"type", "Replace"}, {"pattern", {{"Regex", regex}}}, {"content", to}}; }
json prepend(const std::string& front) { return {{"type", "Prepend"}, {"prepend", front}}; }
json in_turn(std::vector<json> steps) { return {{"type", "Sequence"}, {"normalizers", steps}}; }

struct Special {
  std::string content;
  bool normalized = true, lstrip = false, rstrip = false, special = true;
};

// By characters with byte fallback, so that every text has ids and none of them are special.
json tokenizer_file(const json& normalizer, const std::vector<Special>& tokens) {
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = static_cast<int>(vocab.size());
  for (char c = '!'; c <= '~'; ++c) vocab[std::string(1, c)] = static_cast<int>(vocab.size());
  json added = json::array();
  for (const Special& token : tokens)
    added.push_back({{"id", vocab.size() + added.size()},
                     {"content", token.content},
                     {"special", token.special},
                     {"normalized", token.normalized},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip}});
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", normalizer},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Metaspace"}, {"replacement", "_"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}, {"byte_fallback", true}}}};
}

RenderedPrompt prompt_of(const PromptParts& parts) {
  RenderedPrompt prompt;
  for (const auto& [text, own] : parts) {
    if (!own && !text.empty()) prompt.untrusted.push_back({prompt.text.size(), prompt.text.size() + text.size()});
    prompt.text += text;
  }
  return prompt;
}

std::shared_ptr<const Tokenizer> encoder_tokenizer(const json& file) { return std::make_shared<const Tokenizer>(Tokenizer::from_json(file.dump())); }

std::map<std::string, int> specials_in(const Tokenizer& tokenizer, const Ids& ids) {
  std::map<std::string, int> count;
  for (const std::int32_t id : ids)
    if (tokenizer.is_special(id)) ++count[tokenizer.token_text(id)];
  return count;
}

int specials(const json& normalizer, const std::vector<Special>& tokens, const PromptParts& parts) {
  const auto tokenizer = encoder_tokenizer(tokenizer_file(normalizer, tokens));
  int sum = 0;
  for (const auto& [text, count] : specials_in(*tokenizer, PromptEncoder(tokenizer).encode(prompt_of(parts)))) sum += count;
  return sum;
}

TEST(PromptEncoder, NoSpellingThatANormalizerMakesATokenForgesOne) {
  struct Row {
    json normalizer;
    std::string token, forged;
  };
  const std::vector<Row> rows = {
      {nullptr, "<|end|>", "<|end|>"},
      {kNfkc, "<|end|>", "＜｜ｅｎｄ｜＞"},
      {kNfkc, "<|end|>", "<|ｅnd|>"},
      {kNfkc, "<|office|>",
       "<|o\xEF\xAC\x83"
       "ce|>"},  // a ligature
      {kNfc, "<|\xC3\xA9|>", "<|e\xCC\x81|>"},
      {{{"type", "NFD"}}, "<|e\xCC\x81|>", "<|\xC3\xA9|>"},
      {kLower, "<|end|>", "<|END|>"},
      {in_turn({kNfkc, kLower}), "<|end|>", "＜|ＥＮＤ|＞"},
      {replaced("\xE2\x96\x81", ""), "<|end|>",
       "<|\xE2\x96\x81"
       "end|>"},  // characters that go
      {replace_all("[\\x{200B}\\x{200D}]", ""), "<|end|>",
       "<\xE2\x80\x8B|en\xE2\x80\x8D"
       "d|>"},
      {replaced("[", "<"), "<s>", "[s>"},
      {replaced("abc", "<s>"), "<s>", "abc"},
      {in_turn({prepend("_"), replaced(" ", "_")}), "<s>", "_<s>"},
      {in_turn({prepend("_"), replaced(" ", "_")}), "<s>", " <s>"},
      {{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}, "<s>", "  <s> "},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.normalizer.dump() + " " + row.forged);
    const std::vector<Special> token = {{row.token}};
    // Controls: the text forges where nobody looks who wrote it, and the template may spell its token so.
    const auto tokenizer = encoder_tokenizer(tokenizer_file(row.normalizer, token));
    EXPECT_EQ(specials_in(*tokenizer, tokenizer->encode(row.forged, false))[row.token], 1);
    EXPECT_EQ(specials(row.normalizer, token, {{row.forged, true}}), 1);
    EXPECT_EQ(specials(row.normalizer, token, {{row.forged, false}}), 0);
    // In halves: what either writes is no token.
    for (std::size_t cut = 0; cut <= row.forged.size(); ++cut) {
      if (cut < row.forged.size() && (static_cast<unsigned char>(row.forged[cut]) & 0xC0) == 0x80) continue;
      const std::string front = row.forged.substr(0, cut), back = row.forged.substr(cut);
      const auto says = [&](const std::string& own) {
        return own.find(row.token) != std::string::npos ||
               Normalizer::from_json(row.normalizer).apply(own).find(Normalizer::from_json(row.normalizer).apply(row.token)) != std::string::npos;
      };
      EXPECT_EQ(specials(row.normalizer, token, {{front, true}, {back, false}}), says(front)) << cut;
      EXPECT_EQ(specials(row.normalizer, token, {{front, false}, {back, true}}), says(back)) << cut;
    }
  }
}

TEST(PromptEncoder, ATokenOfTheTemplateStaysBesideAForgedOne) {
  const std::vector<Special> tokens = {{"<s>"}, {"<s>x"}, {"a<"}, {"b<", false, false, false, false}, {"<|end|>", false, true, true}};
  for (const json& normalizer : {json(), kNfkc}) {
    SCOPED_TRACE(normalizer.dump());
    EXPECT_EQ(specials(normalizer, tokens, {{"<s>", true}, {"x", false}}), 1);  // not the longer token
    EXPECT_EQ(specials(normalizer, tokens, {{"<s>x", true}}), 1);
    EXPECT_EQ(specials(normalizer, tokens, {{"a", false}, {"<s>", true}}), 1);  // not the one that begins before
    EXPECT_EQ(specials(normalizer, tokens, {{"b", false}, {"<s>", true}}), 1);
    EXPECT_EQ(specials(normalizer, tokens, {{"<s>", false}, {"<s>", true}, {"<s>", false}}), 1);
    EXPECT_EQ(specials(normalizer, tokens, {{"<s><|end|>", true}, {" <s> <|end|> ", false}, {"<|end|><s>", true}}), 4);
    EXPECT_EQ(specials(normalizer, tokens, {{" ", false}, {"<|end|>", true}, {"\n", false}}), 1);  // strips what others wrote
  }
}

TEST(PromptEncoder, ACombiningCharacterDoesNotUndoTheTokenBefore) {
  const std::string stroke = "\xCC\xB8";  // with ">" it is one character
  const auto tokenizer = encoder_tokenizer(tokenizer_file(kNfc, {{"<s>"}, {"<|a|>", false}}));
  EXPECT_TRUE(specials_in(*tokenizer, tokenizer->encode("<s>" + stroke, false)).empty());  // the control
  for (const bool behind_a_token : {false, true}) {
    const std::string front = behind_a_token ? "<|a|>xx<s>"
                                             : "\xC3\xA9"
                                               "<s>";
    EXPECT_EQ(specials(kNfc, {{"<s>"}, {"<|a|>", false}}, {{front, true}, {stroke + "b", false}, {"<s>", true}, {stroke, false}}), 2 + behind_a_token);
  }
  EXPECT_EQ(specials(kNfc, {{"<s>"}}, {{"<s", true}, {">" + stroke, false}}), 0);
}

// With normalized tokens and a prefix, white space that comes before a token is part of what is looked for.
TEST(PromptEncoder, WhiteSpaceOfAMessageDoesNotUndoATokenBehindIt) {
  const auto tokenizer = encoder_tokenizer(tokenizer_file(in_turn({prepend("_"), replaced(" ", "_")}), {{"</s>"}}));
  const RenderedPrompt prompt = prompt_of({{"[", true}, {"Hello ", false}, {"</s>", true}});
  EXPECT_EQ(PromptEncoder(tokenizer).encode(prompt), tokenizer->encode(prompt.text, false));
  EXPECT_EQ(specials_in(*tokenizer, PromptEncoder(tokenizer).encode(prompt))["</s>"], 1);
}

TEST(PromptEncoder, MergesDoNotMakeASpecialToken) {
  json file = tokenizer_file(kNfkc, {});
  json& vocab = file["model"]["vocab"];
  for (const char* text : {"<s", "<s>"}) vocab[text] = vocab.size();
  file["model"]["merges"] = {"< s", "<s >"};
  file["added_tokens"] = {{{"id", vocab["<s>"]}, {"content", "<s>"}, {"special", true}, {"normalized", false}}};
  for (const bool whole : {false, true}) {
    file["model"]["ignore_merges"] = whole;
    const auto tokenizer = encoder_tokenizer(file);
    const std::int32_t id = *tokenizer->token_id("<s>");
    const auto count = [&](const Ids& ids) { return std::count(ids.begin(), ids.end(), id); };
    EXPECT_EQ(count(tokenizer->encode("＜s＞", false)), 1);  // merged behind the normalizer: so does Hugging Face
    EXPECT_EQ(count(tokenizer->encode("<s>", false, false)), 0);
    EXPECT_EQ(count(tokenizer->encode_with_offsets("<s>", false, false).ids), 0);
    const PromptEncoder encoder(tokenizer);
    for (const char* forged : {"<s>", "＜s＞", "a<s>b"})
      EXPECT_EQ(count(encoder.encode(prompt_of({{"<s>", true}, {forged, false}, {"<s>", true}}))), 2) << forged;
  }
}

// One pass, however many tokens there are and however many of them a user writes.
TEST(PromptEncoder, AHostilePromptTakesNoLonger) {
  std::vector<Special> tokens;
  for (int i = 0; i < 1000; ++i) tokens.push_back({fmt::format("<|reserved_special_token_{}|>", i), i % 2 == 0});
  std::string text;
  while (text.size() < 200'000) text += fmt::format("some <b>words</b> <|reserved_special_token_{}|>", text.size() % 1000);
  const auto tokenizer = encoder_tokenizer(tokenizer_file(kNfkc, tokens));
  const PromptEncoder encoder(tokenizer);
  const auto milliseconds = [](auto&& run) {
    const auto began = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
  };
  const RenderedPrompt prompt = prompt_of({{"<|reserved_special_token_1|>", true}, {text, false}});
  const double plain = milliseconds([&] { EXPECT_GT(specials_in(*tokenizer, tokenizer->encode(prompt.text, false)).size(), 100u); });
  const double guarded = milliseconds([&] { EXPECT_EQ(specials_in(*tokenizer, encoder.encode(prompt)).size(), 1u); });
  EXPECT_LT(guarded, 20 * plain + 500);  // far more than it takes, far less than a search for each token would
}

TEST(PromptEncoder, ARangeIsOfCharacters) {
  const auto tokenizer = encoder_tokenizer(tokenizer_file(nullptr, {{"<s>"}}));
  EXPECT_THROW(PromptEncoder(tokenizer).encode({.text = "\xFF", .untrusted = {{0, 1}}, .generated = {}}), Error);
}

// --- in every field of every template

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  std::size_t below(std::size_t n) { return engine_() % n; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  std::mt19937 engine_;
};

const std::vector<std::string> kTokens = {"<|im_start|>",
                                          "<|im_end|>",
                                          "<|endoftext|>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[TOOL_CALLS]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[SYSTEM_PROMPT]",
                                          "[gMASK]",
                                          "<sop>",
                                          "<|user|>",
                                          "<|assistant|>",
                                          "<|system|>",
                                          "<|observation|>",
                                          "<|end|>",
                                          "<|start|>",
                                          "<|message|>",
                                          "<|channel|>",
                                          "<|call|>",
                                          "<|start_of_role|>",
                                          "<|end_of_role|>",
                                          "<|end_of_text|>",
                                          "<seed:bos>",
                                          "<seed:eos>",
                                          "<｜User｜>",
                                          "<｜Assistant｜>",
                                          "<｜end▁of▁sentence｜>",
                                          "<|begin_of_text|>",
                                          "<|eot_id|>",
                                          "<|start_header_id|>",
                                          "<|end_header_id|>",
                                          "<SPECIAL_10>",
                                          "<SPECIAL_11>",
                                          "<SPECIAL_12>",
                                          "]~b]",
                                          "[e~[",
                                          "]~!b[",
                                          "<|im_user|>",
                                          "<|im_middle|>",
                                          "<|im_assistant|>",
                                          "<|tool_call_begin|>",
                                          "<|7|>"};

std::string full_width(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c > ' ' && c <= '~') out += {'\xEF', static_cast<char>(0xBC + (c - 0x20 >= 0x40)), static_cast<char>(0x80 + ((c - 0x20) & 0x3F))};
    else out += c;
  }
  return out;
}

// Tokens and pieces of them, other spellings, what templates cut at.
std::string hostile(Dice& dice) {
  static const std::vector<std::string> others = {"<",       "|",         ">",        "[",  "]",  "\n",           " ", "\"", "\\", "</think>",
                                                  "<think>", "e\xCC\x81", "\xCC\xB8", "{{", "%s", "\xE2\x80\x8B", "'", "7"};
  std::string text;
  for (std::size_t n = dice.below(5); n > 0; --n) {
    std::string piece = dice.pick(kTokens);
    switch (dice.below(8)) {
      case 0:
        piece = piece.substr(0, 1 + dice.below(2));
        break;
      case 1:
        piece = piece[0] == '<' && piece[1] != '\xEF' ? piece.substr(1 + dice.below(2) * (piece[1] < 0x7F)) : piece;
        break;
      case 2:
        piece = full_width(piece);
        break;
      case 3:
        std::transform(piece.begin(), piece.end(), piece.begin(), [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
        break;
      case 4:
        piece = dice.pick(others);
        break;
      case 5:
        piece.insert(piece[0] > 0 && piece.size() > 1 && piece[1] > 0 ? 1 : 0, "\xE2\x80\x8B");
        break;
      default:
        break;
    }
    text += piece;
  }
  return text;
}

ordered_json hostile_schema(Dice& dice) {
  return {{"type", "object"},
          {"required", {hostile(dice)}},
          {"properties",
           {{hostile(dice), {{"type", "string"}, {"description", hostile(dice)}, {"enum", {hostile(dice), 7}}}},
            {"n", {{"type", dice.below(2) ? "integer" : hostile(dice)}, {"default", 7}}}}}};
}

ChatTemplateInput hostile_input(Dice& dice) {
  ChatTemplateInput input;
  input.unix_time = 1;
  input.messages = ordered_json::array();
  static const std::vector<std::string> roles = {"system", "user", "assistant", "tool", "developer"};
  if (dice.below(2)) input.messages.push_back({{"role", "system"}, {"content", hostile(dice)}});
  for (std::size_t n = 1 + dice.below(4); n > 0; --n) {
    input.messages.push_back({{"role", "user"}, {"content", hostile(dice)}});
    if (dice.below(4) == 0) input.messages.back()["content"] = ordered_json::array({{{"type", "text"}, {"text", hostile(dice)}}});
    if (dice.below(2)) {
      ordered_json answer = {{"role", "assistant"}, {"content", hostile(dice)}};
      if (dice.below(3) == 0) answer["reasoning_content"] = hostile(dice);
      if (dice.below(2)) {
        ordered_json arguments = {{hostile(dice), hostile(dice)}, {"n", 7}, {"deep", {{hostile(dice), {true, nullptr, hostile(dice)}}}}};
        const std::string id = dice.below(2) ? "abcdefghi" : hostile(dice);
        answer["tool_calls"] = {{{"id", id}, {"type", "function"}, {"function", {{"name", hostile(dice)}, {"arguments", arguments}}}}};
        input.messages.push_back(answer);
        answer = {{"role", "tool"}, {"name", hostile(dice)}, {"tool_call_id", id}, {"content", hostile(dice)}};
        if (dice.below(4) == 0) answer["content"] = {{hostile(dice), hostile(dice)}};
      }
      input.messages.push_back(answer);
    }
    if (dice.below(8) == 0) input.messages.push_back({{"role", hostile(dice)}, {"content", 7}, {"name", hostile(dice)}});
  }
  if (dice.below(2))
    input.tools = {{{"type", "function"}, {"function", {{"name", hostile(dice)}, {"description", hostile(dice)}, {"parameters", hostile_schema(dice)}}}}};
  if (dice.below(3) == 0)
    input.extra = {
        {"enable_thinking", dice.below(2) == 0}, {"reasoning_effort", hostile(dice)}, {"documents", {{{"title", hostile(dice)}, {"text", hostile(dice)}}}}};
  input.add_generation_prompt = dice.below(2);
  return input;
}

int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PromptEncoder, NoFieldOfAnyTemplateForgesAToken) {
  struct Kind {
    json normalizer;
    bool normalized;
  };
  const std::vector<Kind> kinds = {{nullptr, false},
                                   {kNfkc, true},
                                   {in_turn({kNfkc, kLower, replace_all("\\x{200B}", "")}), true},
                                   {in_turn({prepend("_"), replaced(" ", "_")}), true},
                                   {kNfkc, false}};
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::recursive_directory_iterator(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/templates"))
    if (file.path().extension() == ".jinja") files.push_back(file.path());
  std::sort(files.begin(), files.end());
  ASSERT_GT(files.size(), 10u);
  std::vector<ChatTemplate> chats;
  for (const auto& file : files) chats.push_back(ChatTemplate::from_source(read_file(file, 1 << 20), {{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  std::vector<int> rendered(files.size());
  int forged_without_guard = 0, written = 0;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    std::vector<Special> tokens;
    for (const std::string& token : kTokens) tokens.push_back({token, kinds[k].normalized, token == "</s>", token == "<|end|>"});
    const auto tokenizer = encoder_tokenizer(tokenizer_file(kinds[k].normalizer, tokens));
    const Normalizer normalizer = Normalizer::from_json(kinds[k].normalizer);
    const PromptEncoder encoder(tokenizer);
    for (std::size_t f = 0; f < files.size(); ++f) {
      for (unsigned seed = 0; seed < 40; ++seed) {
        Dice dice(seed * 1000 + static_cast<unsigned>(k * 100 + f));
        RenderedPrompt prompt;
        try {
          prompt = chats[f].render_marked(hostile_input(dice));
        } catch (const Error&) {
          continue;  // the template refuses such messages
        }
        ++rendered[f];
        // What the template wrote, stretch by stretch.
        std::vector<std::string> own;
        std::size_t at = 0;
        for (const auto& range : prompt.untrusted) {
          own.push_back(prompt.text.substr(at, range.begin - at));
          at = range.end;
        }
        own.push_back(prompt.text.substr(at));
        const auto ids = encoder.encode(prompt);
        for (const auto& [token, count] : specials_in(*tokenizer, ids)) {
          int most = 0;
          for (const std::string& text : own)
            most += std::max(occurrences(text, token), kinds[k].normalized ? occurrences(normalizer.apply(text), normalizer.apply(token)) : 0);
          EXPECT_LE(count, most) << files[f] << " kind " << k << " seed " << seed << " " << token << "\n" << prompt.text;
          written += count;
        }
        int all = 0, guarded = 0;
        for (const auto& [token, count] : specials_in(*tokenizer, tokenizer->encode(prompt.text, false))) all += count;
        for (const auto& [token, count] : specials_in(*tokenizer, ids)) guarded += count;
        forged_without_guard += all > guarded;
      }
    }
  }
  // The control: most of these prompts would hold forged tokens.
  EXPECT_GT(forged_without_guard, 500);
  EXPECT_GT(written, 1000);
  for (std::size_t f = 0; f < files.size(); ++f) EXPECT_GT(rendered[f], 5) << files[f];
}

// Harmless text has the ids that it has without a guard, whoever wrote it and whatever the normalizer joins at the borders.
TEST(PromptEncoder, HarmlessTextHasTheIdsOfTheWholePrompt) {
  const std::vector<Special> tokens = {{"<s>", true}, {"</s>", true, true, true}, {"<|a|>", false}, {"<tool>", true, false, false, false}};
  const std::vector<json> normalizers = {nullptr,
                                         kNfkc,
                                         kNfc,
                                         in_turn({prepend("_"), replaced(" ", "_")}),
                                         replace_all("\\s+", " "),
                                         in_turn({kNfkc, kLower}),
                                         {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}};
  const std::vector<std::string> harmless = {"a", " ", "e", "\xCC\x81", "\xE6\x97\xA5", "  b ", "\n", "x<", "<tool>", "|>", "\xEF\xAC\x83"},
                                 own = {"<s>", "</s>", "<|a|>", " ", "e", "user\n", "<tool>", ""};
  for (const json& normalizer : normalizers) {
    const auto tokenizer = encoder_tokenizer(tokenizer_file(normalizer, tokens));
    const PromptEncoder encoder(tokenizer);
    for (unsigned seed = 0; seed < 500; ++seed) {
      Dice dice(seed);
      PromptParts parts;
      for (std::size_t n = 1 + dice.below(12); n > 0; --n)
        parts.push_back(n % 2 ? PromptParts::value_type{dice.pick(harmless), false} : PromptParts::value_type{dice.pick(own), true});
      const RenderedPrompt prompt = prompt_of(parts);
      EXPECT_EQ(encoder.encode(prompt), tokenizer->encode(prompt.text, false)) << normalizer << " seed " << seed << " " << prompt.text;
    }
  }
}
}  // namespace
}  // namespace lockstep
