// A map between token texts and ids, both ways, in a few flat arrays: one hash probe and no allocation per look-up.
//   Vocabulary v; v.add("the", 5); v.id_of("the") == 5; v.text_of(5) == "the";
// Thread rule: immutable once filled.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Vocabulary {
 public:
  static constexpr std::int32_t kNone = -1;

  Vocabulary();
  // False when the text or the id is taken already. `text` is not empty, `id` is not negative.
  bool add(std::string_view text, std::int32_t id);
  std::int32_t id_of(std::string_view text) const;   // kNone when absent
  std::string_view text_of(std::int32_t id) const {  // empty when no text has the id
    if (id < 0 || id >= id_limit()) return {};
    const Span& span = spans_[static_cast<std::size_t>(id)];
    return {texts_.data() + span.begin, span.bytes};
  }
  std::int32_t size() const { return size_; }                                         // entries; ids may have gaps
  std::int32_t id_limit() const { return static_cast<std::int32_t>(spans_.size()); }  // largest id + 1

 private:
  struct Span {
    std::size_t begin = 0;
    std::uint32_t bytes = 0;
  };
  struct Slot {
    std::uint32_t tag;
    std::int32_t id = kNone;
  };
  void grow();
  void place(std::string_view text, std::int32_t id);
  std::string texts_;
  std::vector<Span> spans_;  // by id
  std::vector<Slot> slots_;  // a power of two, at most half full
  std::int32_t size_ = 0;
};

}  // namespace lockstep
