#include "checkpoint/difference_case.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/json_file.h"

namespace lockstep {

namespace {
constexpr const char* kFormat = "lockstep difference case";
constexpr std::size_t kMostCaseBytes = std::size_t{256} << 20, kMostCaseTokens = std::size_t{1} << 22, kMostCaseNameBytes = 4096;

std::string hex_of_bits(std::uint32_t bits) { return fmt::format("{:#010x}", bits); }

std::string hex_of_words(const std::vector<std::int32_t>& words) {
  std::string text;
  for (const std::int32_t word : words) fmt::format_to(std::back_inserter(text), "{:08x}", std::bit_cast<std::uint32_t>(word));
  return text;
}

// 8 digits, lower case as they are written.
std::optional<std::uint32_t> word_of_hex(std::string_view digits) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  const bool plain = digits.size() == 8 && std::none_of(digits.begin(), digits.end(), [](char c) { return c >= 'A' && c <= 'F'; });
  if (!plain || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// Takes the fields of a case's file one after another; each is there, and nothing else is.
class CaseFields {
 public:
  CaseFields(Json json, std::string place) : json_(std::move(json)), place_(std::move(place)) {}

  [[noreturn]] void wrong(const std::string& field, const std::string& got, const std::string& allowed) const {
    fail(ErrorCode::corrupt_file, "'{}': {} is {}, allowed {}", place_, field, got, allowed);
  }
  [[noreturn]] void wrong(const std::string& field, const Json& got, const std::string& allowed) const {
    const std::string text = got.dump(-1, ' ', false, Json::error_handler_t::replace);
    wrong(field, text.size() <= 60 ? text : text.substr(0, 57) + "...", allowed);
  }
  Json take(const char* name) {
    const auto found = json_.find(name);
    if (found == json_.end()) fail(ErrorCode::corrupt_file, "'{}': the field {} is missing", place_, name);
    Json value = std::move(*found);
    json_.erase(found);
    return value;
  }
  std::string text(const char* name) {
    const Json value = take(name);
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kMostCaseNameBytes)
      wrong(name, value, fmt::format("is a text of at most {} bytes", kMostCaseNameBytes));
    return value.get<std::string>();
  }
  std::int64_t integer_of(const std::string& field, const Json& value, std::int64_t low, std::int64_t high) const {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const bool whole = value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= kMost);
    if (!whole || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high)
      wrong(field, value, fmt::format("are integers from {} to {}", low, high));
    return value.get<std::int64_t>();
  }
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high) { return integer_of(name, take(name), low, high); }
  double number(const char* name, double low, double high) {
    const Json value = take(name);
    const double got = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(got >= low && got <= high)) wrong(name, value, fmt::format("is a number from {} to {}", low, high));
    return got;
  }
  Json list(const char* name, std::size_t low, std::size_t high) {
    Json value = take(name);
    if (!value.is_array() || value.size() < low || value.size() > high)
      wrong(name, value.is_array() ? fmt::format("a list of {}", value.size()) : value.dump().substr(0, 60), fmt::format("is a list of {} to {}", low, high));
    return value;
  }
  std::vector<std::uint32_t> bits(const char* name, std::size_t count) {
    const Json values = list(name, count, count);
    std::vector<std::uint32_t> all;
    all.reserve(count);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::string digits = values[i].is_string() ? values[i].get<std::string>() : "";
      const std::optional<std::uint32_t> word = digits.starts_with("0x") ? word_of_hex(std::string_view(digits).substr(2)) : std::nullopt;
      if (!word) wrong(fmt::format("{}[{}]", name, i), values[i], "are the bits of a number in fp32, as \"0xbf8c1a2b\"");
      if (!std::isfinite(std::bit_cast<float>(*word)))
        wrong(fmt::format("{}[{}]", name, i), values[i].get<std::string>() + ", the bits of a NaN or an infinity", "are those of finite numbers");
      all.push_back(*word);
    }
    return all;
  }
  void done() const {
    if (!json_.empty()) fail(ErrorCode::corrupt_file, "'{}': the field '{}' is not one of a case's", place_, json_.begin().key().substr(0, 60));
  }

 private:
  Json json_;
  std::string place_;
};

Json json_of_kept(const KeptTokens& kept) {
  if (!kept.cut()) return Json::array();
  return Json::array({static_cast<int>(kept.order), kept.count, hex_of_words(kept.words)});
}

KeptTokens kept_of_json(const CaseFields& fields, const std::string& field, const Json& value) {
  KeptTokens kept;
  if (value.is_array() && value.empty()) return kept;
  const std::string allowed = "are [], and [1 or 2, count, the words in hexadecimal]";
  if (!value.is_array() || value.size() != 3 || !value[2].is_string()) fields.wrong(field, value, allowed);
  kept.order = static_cast<KeptTokens::Order>(fields.integer_of(field + "[0]", value[0], 1, 2));
  kept.count = static_cast<std::int32_t>(fields.integer_of(field + "[1]", value[1], 1, std::numeric_limits<std::int32_t>::max()));
  const std::string& digits = value[2].get_ref<const std::string&>();
  if (digits.empty() || digits.size() % 8 != 0 || digits.size() / 8 > static_cast<std::size_t>(kept.count)) fields.wrong(field, value, allowed);
  for (std::size_t i = 0; i < digits.size(); i += 8) {
    const std::optional<std::uint32_t> word = word_of_hex(std::string_view(digits).substr(i, 8));
    if (!word) fields.wrong(field, value, allowed);
    kept.words.push_back(std::bit_cast<std::int32_t>(*word));
  }
  return kept;
}

void read_texts(CaseFields& fields, DifferenceCase& one) {
  const std::pair<const char*, std::string DifferenceCase::*> texts[] = {
      {"model", &DifferenceCase::model},     {"model_sha256", &DifferenceCase::model_sha256},
      {"adapter", &DifferenceCase::adapter}, {"adapter_sha256", &DifferenceCase::adapter_sha256},
      {"profile", &DifferenceCase::profile}, {"profile_digest", &DifferenceCase::profile_digest},
      {"backend", &DifferenceCase::backend}, {"isa", &DifferenceCase::isa},
      {"ranks", &DifferenceCase::ranks},     {"keep_forward", &DifferenceCase::keep_forward}};
  for (const auto& [name, member] : texts) one.*member = fields.text(name);
  if (one.model.empty()) fields.wrong("model", std::string("empty"), "is a model's folder");
  if (one.adapter.empty() != one.adapter_sha256.empty())
    fields.wrong("adapter_sha256", std::string(one.adapter.empty() ? "there" : "empty"), "is the digest of `adapter`, and empty without one");
}

void read_numbers_of(CaseFields& fields, DifferenceCase& one) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  one.mla_norm_eps = fields.number("mla_norm_eps", 0, 1);
  one.threads = fields.integer("threads", 1, 4096);
  one.step = fields.integer("step", 1, kMost);
  one.weights_version = static_cast<std::uint64_t>(fields.integer("weights_version", 0, kMost));
  one.temperature = static_cast<float>(fields.number("temperature", static_cast<double>(1e-6f), 100));
  one.top_p = static_cast<float>(fields.number("top_p", 0, 1));
  one.min_p = static_cast<float>(fields.number("min_p", 0, 1));
  one.top_k = static_cast<std::int32_t>(fields.integer("top_k", 0, std::numeric_limits<std::int32_t>::max()));
}

void read_tokens_of(CaseFields& fields, DifferenceCase& one) {
  const Json tokens = fields.list("tokens", 2, kMostCaseTokens);
  one.tokens.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    one.tokens.push_back(static_cast<std::int32_t>(fields.integer_of(fmt::format("tokens[{}]", i), tokens[i], 0, std::numeric_limits<std::int32_t>::max())));
  const Json positions = fields.list("positions", 1, one.tokens.size() - 1);
  std::int64_t least = 1;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    one.positions.push_back(fields.integer_of(fmt::format("positions[{}]", i), positions[i], least, std::ssize(one.tokens) - 1));
    least = one.positions.back() + 1;  // ascending
  }
  one.shared_prefix = fields.integer("shared_prefix", 0, one.positions.front() - 1);
  one.sampler_bits = fields.bits("sampler_bits", one.positions.size());
  one.trainer_bits = fields.bits("trainer_bits", one.positions.size());
  const Json kept = fields.list("kept", 0, one.positions.size());
  if (!kept.empty() && kept.size() != one.positions.size())
    fields.wrong("kept", fmt::format("a list of {}", kept.size()), fmt::format("are 0, and one for each of {} positions", one.positions.size()));
  for (std::size_t i = 0; i < kept.size(); ++i) one.kept.push_back(kept_of_json(fields, fmt::format("kept[{}]", i), kept[i]));
}

Json first_of(const DifferenceCase& one) {
  const std::optional<std::size_t> first = one.first_different();
  return first ? Json(one.positions[*first]) : Json(nullptr);
}
}  // namespace

std::optional<std::size_t> DifferenceCase::first_different() const {
  for (std::size_t i = 0; i < positions.size(); ++i)
    if (sampler_bits[i] != trainer_bits[i]) return i;
  return std::nullopt;
}

std::string case_text(const DifferenceCase& one) {
  Json json{{"format", kFormat},
            {"version", DifferenceCase::kVersion},
            {"model", one.model},
            {"model_sha256", one.model_sha256},
            {"adapter", one.adapter},
            {"adapter_sha256", one.adapter_sha256},
            {"mla_norm_eps", one.mla_norm_eps},
            {"profile", one.profile},
            {"profile_digest", one.profile_digest},
            {"backend", one.backend},
            {"isa", one.isa},
            {"threads", one.threads},
            {"ranks", one.ranks},
            {"keep_forward", one.keep_forward},
            {"step", one.step},
            {"weights_version", one.weights_version},
            {"temperature", static_cast<double>(one.temperature)},
            {"top_k", one.top_k},
            {"top_p", static_cast<double>(one.top_p)},
            {"min_p", static_cast<double>(one.min_p)},
            {"shared_prefix", one.shared_prefix},
            {"first_different", first_of(one)},
            {"tokens", one.tokens},
            {"positions", one.positions}};
  for (const auto& [name, bits] : {std::pair("sampler_bits", &one.sampler_bits), std::pair("trainer_bits", &one.trainer_bits)}) {
    Json& list = json[name] = Json::array();
    for (const std::uint32_t word : *bits) list.push_back(hex_of_bits(word));
  }
  Json& kept = json["kept"] = Json::array();
  for (const KeptTokens& set : one.kept) kept.push_back(json_of_kept(set));
  // A line a field: lists stand in one.
  std::string text = "{";
  for (const auto& [key, value] : json.items()) text += fmt::format("{}\n{}: {}", text.size() > 1 ? "," : "", Json(key).dump(), value.dump());
  return text + "\n}\n";
}

void write_case(const std::filesystem::path& path, const DifferenceCase& one) {
  const std::string text = case_text(one);
  if (text.size() > kMostCaseBytes)
    fail(ErrorCode::resource_exhausted, "a difference of {} tokens takes {} bytes, allowed are at most {}", one.tokens.size(), text.size(), kMostCaseBytes);
  write_file_atomic(path, text);
}

DifferenceCase read_case(const std::filesystem::path& path) {
  CaseFields fields(read_json_file(path, kMostCaseBytes), path.string());
  if (const Json format = fields.take("format"); format != kFormat) fields.wrong("format", format, fmt::format("is \"{}\"", kFormat));
  if (const Json version = fields.take("version"); version != DifferenceCase::kVersion)
    fail(ErrorCode::unsupported, "'{}': version is {}, allowed is {}", path.string(), version.dump().substr(0, 60), DifferenceCase::kVersion);
  DifferenceCase one;
  read_texts(fields, one);
  read_numbers_of(fields, one);
  read_tokens_of(fields, one);
  if (const Json first = fields.take("first_different"); first != first_of(one))
    fields.wrong("first_different", first, fmt::format("is {}, where the bits first differ", first_of(one).dump()));
  fields.done();
  return one;
}

std::filesystem::path case_path(const std::filesystem::path& file, const std::string& path) {
  const std::filesystem::path given(path);
  return given.is_absolute() ? given : file.parent_path() / given;
}

}  // namespace lockstep
