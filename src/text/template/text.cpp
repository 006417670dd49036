#include "text/template/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "text/template/budget.h"

namespace lockstep::jinja {
namespace {
std::int64_t count_characters(std::string_view bytes) {
  std::int64_t count = 0;
  for (const char c : bytes) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}
}  // namespace

Text::Text(std::string bytes, bool foreign) : bytes_(std::move(bytes)), length_(count_characters(bytes_)) {
  RenderBudget::bytes(bytes_.size());
  if (foreign && !bytes_.empty()) foreign_.push_back({0, bytes_.size()});
}

std::size_t Text::byte_of(std::int64_t character) const {
  if (length_ == static_cast<std::int64_t>(bytes_.size())) return static_cast<std::size_t>(character);
  if (character == length_) return bytes_.size();
  RenderBudget::read(static_cast<std::size_t>(character));
  std::size_t at = 0;
  for (std::int64_t i = 0; i < character; ++i) at = character_end(at);
  return at;
}

std::size_t Text::character_end(std::size_t byte) const {
  do ++byte;
  while (byte < bytes_.size() && (static_cast<unsigned char>(bytes_[byte]) & 0xC0) == 0x80);
  return byte;
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  TextBuilder out;
  out.append_slice(*this, begin, end);
  Text part = out.take();
  part.markup_ = markup_;
  return part;
}

void TextBuilder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  RenderBudget::bytes(sizeof(ByteRange));
  if (!foreign_.empty() && foreign_.back().end == begin) foreign_.back().end = end;
  else foreign_.push_back({begin, end});
}

void TextBuilder::append(std::string_view bytes, bool foreign) {
  RenderBudget::bytes(bytes.size());
  if (bytes_.size() + bytes.size() > most_) fail(ErrorCode::resource_exhausted, "the chat template's output is longer than {} bytes; that is the limit", most_);
  if (foreign) mark(bytes_.size(), bytes_.size() + bytes.size());
  bytes_.append(bytes);
}

void TextBuilder::append_slice(const Text& text, std::size_t begin, std::size_t end) {
  const std::size_t start = bytes_.size();
  append(text.view().substr(begin, end - begin));
  const auto& foreign = text.foreign();
  auto range = std::upper_bound(foreign.begin(), foreign.end(), begin, [](std::size_t at, const ByteRange& r) { return at < r.end; });
  for (; range != foreign.end() && range->begin < end; ++range) mark(start + std::max(range->begin, begin) - begin, start + std::min(range->end, end) - begin);
}

Text TextBuilder::take() {
  Text text;
  text.length_ = count_characters(bytes_);
  text.bytes_ = std::move(bytes_);
  text.foreign_ = std::move(foreign_);
  bytes_.clear();
  foreign_.clear();
  return text;
}

std::size_t find_first(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // glibc's memmem is linear, std::string_view::find is not.
  const void* found = part.empty() ? text.data() + from : memmem(text.data() + from, text.size() - from, part.data(), part.size());
  const std::size_t at = found ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
  RenderBudget::search((found ? at : text.size()) - from + 8 * part.size());
  return at;
}

std::size_t find_last(std::string_view text, std::string_view part) {
  // Piece by piece from the end, so that what is cut off from the right again and again is not searched as a whole each time.
  std::size_t end = text.size();
  for (std::size_t size = std::max<std::size_t>(256, 2 * part.size());; size *= 2) {
    const std::size_t begin = end - std::min(end, size);
    const std::string backwards(text.rbegin(), text.rend() - static_cast<std::ptrdiff_t>(begin)), wanted(part.rbegin(), part.rend());
    RenderBudget::read(backwards.size() + wanted.size());
    const std::size_t at = find_first(backwards, wanted);
    if (at != std::string_view::npos) return end - at - part.size();
    if (begin == 0) return std::string_view::npos;
  }
}

bool is_python_space(std::uint32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

namespace {
template <class P>
Text strip_if(const Text& text, Side side, const P& goes) {
  const std::string_view bytes = text.view();
  std::size_t begin = 0, end = bytes.size();
  if (side != Side::right)
    while (begin < end) {
      const Utf8Unit unit = utf8_front(bytes.substr(begin));
      if (!goes(unit.codepoint)) break;
      begin += unit.bytes;
    }
  if (side != Side::left)
    while (end > begin) {
      std::size_t start = end - 1;
      while (start > begin && (static_cast<unsigned char>(bytes[start]) & 0xC0) == 0x80) --start;
      if (!goes(utf8_front(bytes.substr(start)).codepoint)) break;
      end = start;
    }
  RenderBudget::read(bytes.size() - (end - begin));
  return text.slice(begin, end);
}
}  // namespace

Text strip(const Text& text, Side side) { return strip_if(text, side, is_python_space); }

Text strip(const Text& text, Side side, std::string_view chars) {
  std::vector<std::uint32_t> set;
  each_character(chars, [&](std::uint32_t c, std::size_t, std::size_t) { set.push_back(c); });
  return strip_if(text, side, [&](std::uint32_t c) { return std::find(set.begin(), set.end(), c) != set.end(); });
}

std::vector<Text> split_white_space(const Text& text, std::int64_t most, bool from_right) {
  std::vector<ByteRange> words;
  bool inside = false;
  each_character(text.view(), [&](std::uint32_t c, std::size_t begin, std::size_t end) {
    const bool space = is_python_space(c);
    if (!space && !inside) words.push_back({begin, end});
    if (!space) words.back().end = end;
    inside = !space;
  });
  const auto count = static_cast<std::int64_t>(words.size());
  if (most >= 0 && count > most) {
    // What is not split any more is one part; of the white space around it, that away from the splitting side stays.
    if (from_right) {
      words[static_cast<std::size_t>(count - most - 1)].begin = 0;
      words.erase(words.begin(), words.begin() + (count - most - 1));
    } else {
      words[static_cast<std::size_t>(most)].end = text.bytes().size();
      words.resize(static_cast<std::size_t>(most + 1));
    }
  }
  std::vector<Text> parts;
  for (const ByteRange& word : words) parts.push_back(text.slice(word.begin, word.end));
  return parts;
}

std::vector<Text> split(const Text& text, std::string_view separator, std::int64_t most, bool from_right) {
  const std::string_view bytes = text.view();
  std::vector<Text> parts;
  if (!from_right) {
    std::size_t at = 0;
    while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
      const std::size_t found = find_first(bytes, separator, at);
      if (found == std::string_view::npos) break;
      RenderBudget::step();
      parts.push_back(text.slice(at, found));
      at = found + separator.size();
    }
    parts.push_back(text.slice(at, bytes.size()));
    return parts;
  }
  std::size_t end = bytes.size();
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t found = find_last(bytes.substr(0, end), separator);
    if (found == std::string_view::npos) break;
    RenderBudget::step();
    parts.push_back(text.slice(found + separator.size(), end));
    end = found;
  }
  parts.push_back(text.slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  std::size_t start = 0;
  bool after_return = false;
  const std::string_view bytes = text.view();
  each_character(bytes, [&](std::uint32_t c, std::size_t begin, std::size_t end) {
    if (after_return && c == '\n') {
      after_return = false;
      start = end;
      return;
    }
    after_return = false;
    const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) return;
    after_return = c == '\r';
    const bool pair = after_return && end < bytes.size() && bytes[end] == '\n';
    RenderBudget::step();
    lines.push_back(text.slice(start, keep_ends ? end + pair : begin));
    start = end;
  });
  if (start < bytes.size()) lines.push_back(text.slice(start, bytes.size()));
  return lines;
}

Text replace(const Text& text, std::string_view old, const Text& with, std::int64_t most) {
  TextBuilder out;
  const std::string_view bytes = text.view();
  std::int64_t done = 0;
  std::size_t at = 0;
  if (old.empty()) {
    // Before every character and at the end.
    while ((most < 0 || done < most)) {
      RenderBudget::step();
      out.append(with);
      ++done;
      if (at == bytes.size()) break;
      const std::size_t next = text.character_end(at);
      out.append_slice(text, at, next);
      at = next;
    }
  } else {
    while (most < 0 || done < most) {
      const std::size_t found = find_first(bytes, old, at);
      if (found == std::string_view::npos) break;
      RenderBudget::step();
      out.append_slice(text, at, found);
      out.append(with);
      at = found + old.size();
      ++done;
    }
  }
  out.append_slice(text, at, bytes.size());
  return out.take();
}

Text html_escape(const Text& text) {
  Text out;
  if (text.markup()) {
    out = text;
  } else {
    TextBuilder builder;
    const std::string_view bytes = text.view();
    std::size_t start = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const char* entity = bytes[i] == '&'    ? "&amp;"
                           : bytes[i] == '<'  ? "&lt;"
                           : bytes[i] == '>'  ? "&gt;"
                           : bytes[i] == '\'' ? "&#39;"
                           : bytes[i] == '"'  ? "&#34;"
                                              : nullptr;
      if (!entity) continue;
      builder.append_slice(text, start, i);
      builder.append(entity, text.slice(i, i + 1).is_foreign());
      start = i + 1;
    }
    builder.append_slice(text, start, bytes.size());
    out = builder.take();
  }
  out.set_markup(true);
  return out;
}

}  // namespace lockstep::jinja
