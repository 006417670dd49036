#include "text/tokenizer/unicode_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "text/utf8.h"

namespace lockstep {
namespace {
constexpr std::uint32_t kHangulSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr std::uint32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr std::uint32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

bool composes(NormalForm form) { return form == NormalForm::nfc || form == NormalForm::nfkc; }
bool compatible(NormalForm form) { return form == NormalForm::nfkc || form == NormalForm::nfkd; }

int combining_class(std::uint32_t c) { return c < 0x300 ? 0 : utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class; }

// The full decomposition; the character itself when there is none.
std::size_t decompose(NormalForm form, std::uint32_t c, std::array<utf8proc_int32_t, 32>& out) {
  const int options = UTF8PROC_DECOMPOSE | (compatible(form) ? UTF8PROC_COMPAT : 0);
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out.data(), out.size(), static_cast<utf8proc_option_t>(options), nullptr);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(out.size())) {
    fail(ErrorCode::internal, "decomposing U+{:04X} failed: {}", c, utf8proc_errmsg(count));
  }
  return static_cast<std::size_t>(count);
}

std::optional<std::uint32_t> compose(std::uint32_t a, std::uint32_t b) {
  if (a - kLeads < kLeadCount && b - kVowels < kVowelCount) {
    return kHangulSyllables + ((a - kLeads) * kVowelCount + (b - kVowels)) * kTailCount;
  }
  if (a - kHangulSyllables < kSyllableCount && (a - kHangulSyllables) % kTailCount == 0 && b > kTails && b < kTails + kTailCount) {
    return a + (b - kTails);
  }
  std::array<utf8proc_int32_t, 2> pair{static_cast<utf8proc_int32_t>(a), static_cast<utf8proc_int32_t>(b)};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  if (utf8proc_normalize_utf32(pair.data(), 2, options) != 1) return std::nullopt;
  return static_cast<std::uint32_t>(pair[0]);
}

// A character that stays itself whatever stands around it, and in front of which the text may be cut.
bool stays(NormalForm form, std::uint32_t c) {
  if (c < 0x80) return true;
  if (form == NormalForm::nfc && c < 0x300) return true;
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (property->combining_class != 0) return false;
  if (composes(form)) {
    if (property->comb_index != UINT16_MAX && property->comb_index >= 0x8000) return false;
    if (c - kVowels < kVowelCount || (c > kTails && c < kTails + kTailCount)) return false;
    if (c - kHangulSyllables < kSyllableCount) return true;
  }
  std::array<utf8proc_int32_t, 32> parts;
  return decompose(form, c, parts) == 1 && parts[0] == static_cast<utf8proc_int32_t>(c);
}

// Decomposed characters in canonical order, each marked 0 (first of an old character) or 1.
std::vector<CharacterChange> decomposed(NormalForm form, std::string_view text) {
  std::vector<CharacterChange> all;
  std::size_t pending = 0;  // marks from here on are not in order yet
  std::vector<int> classes;
  const auto order = [&] {
    if (all.size() - pending > 1) {
      std::vector<std::pair<int, CharacterChange>> marks;
      for (std::size_t i = pending; i < all.size(); ++i) marks.emplace_back(classes[i - pending], all[i]);
      std::stable_sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (std::size_t i = pending; i < all.size(); ++i) all[i] = marks[i - pending].second;
    }
    pending = all.size();
    classes.clear();
  };
  std::array<utf8proc_int32_t, 32> parts;
  while (!text.empty()) {
    const Utf8Unit unit = utf8_front(text);
    text.remove_prefix(unit.bytes);
    const std::size_t count = decompose(form, unit.codepoint, parts);
    for (std::size_t i = 0; i < count; ++i) {
      const auto part = static_cast<std::uint32_t>(parts[i]);
      const int part_class = combining_class(part);
      if (part_class == 0) order();
      all.push_back({part, i > 0});
      classes.push_back(part_class);
    }
  }
  order();
  return all;
}

// A composed character takes the change of what it swallows, less one.
std::vector<CharacterChange> composed(const std::vector<CharacterChange>& parts) {
  std::vector<CharacterChange> result, blocked;
  std::optional<CharacterChange> starter;
  int last_class = -1;  // of what stands between the starter and here; -1: nothing
  for (const CharacterChange& part : parts) {
    const int part_class = combining_class(part.codepoint);
    if (!starter) {
      if (part_class != 0) result.push_back(part);
      else starter = part;
      continue;
    }
    const bool is_blocked = last_class >= 0 && last_class >= part_class;
    if (!is_blocked) {
      if (const auto joined = compose(starter->codepoint, part.codepoint)) {
        starter = CharacterChange{*joined, starter->change + part.change - 1};
        continue;
      }
    }
    if (part_class == 0) {
      result.push_back(*starter);
      result.insert(result.end(), blocked.begin(), blocked.end());
      blocked.clear();
      starter = part;
      last_class = -1;
    } else {
      blocked.push_back(part);
      last_class = part_class;
    }
  }
  if (starter) result.push_back(*starter);
  result.insert(result.end(), blocked.begin(), blocked.end());
  return result;
}
}  // namespace

bool is_normal(NormalForm form, std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Unit unit = utf8_front(text.substr(i));
    if (!stays(form, unit.codepoint)) return false;
    i += unit.bytes;
  }
  return true;
}

std::string normalize(NormalForm form, std::string_view text) {
  std::string result;
  result.reserve(text.size());
  // Stretches of characters that stay are copied; the last one in front of others may compose with them.
  std::size_t copied = 0, last = 0, i = 0;
  while (i < text.size()) {
    Utf8Unit unit = utf8_front(text.substr(i));
    if (stays(form, unit.codepoint)) {
      last = i;
      i += unit.bytes;
      continue;
    }
    result.append(text, copied, last - copied);
    while (i < text.size()) {
      unit = utf8_front(text.substr(i));
      if (stays(form, unit.codepoint)) break;
      i += unit.bytes;
    }
    for (const CharacterChange& c : normalization_changes(form, text.substr(last, i - last))) utf8_append(result, c.codepoint);
    copied = last = i;
  }
  result.append(text, copied);
  return result;
}

std::vector<CharacterChange> normalization_changes(NormalForm form, std::string_view text) {
  std::vector<CharacterChange> parts = decomposed(form, text);
  return composes(form) ? composed(parts) : parts;
}

std::vector<CharacterChange> lowercase_changes(std::string_view text) {
  std::vector<CharacterChange> changes;
  while (!text.empty()) {
    const Utf8Unit unit = utf8_front(text);
    text.remove_prefix(unit.bytes);
    if (unit.codepoint == 0x130) {  // the one character with two in lower case
      changes.push_back({'i', 0});
      changes.push_back({0x307, 1});
    } else {
      changes.push_back({static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(unit.codepoint))), 0});
    }
  }
  return changes;
}

bool joins_the_one_before(std::uint32_t codepoint) {
  if (codepoint < 0x300) return false;
  std::array<utf8proc_int32_t, 32> parts{};
  if (decompose(NormalForm::nfkd, codepoint, parts) == 0) return false;
  if (parts[0] >= 0x1160 && parts[0] <= 0x11FF) return true;  // vowels and final consonants of Hangul
  const auto category = utf8proc_category(parts[0]);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

}  // namespace lockstep
