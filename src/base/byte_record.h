// Plain values as bytes and back, in one order, for another process of the same build: no names, no versions.
//   ByteWriter out; out.value(3); out.values(floats); out.text("a"); ByteReader in(out.bytes()); in.value<int>() == 3
// A record that ends too early is an error. One thread.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace lockstep {

class ByteWriter {
 public:
  template <class T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <class T>
  void values(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    value(static_cast<std::uint64_t>(values.size()));
    if (!values.empty()) bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void text(std::string_view text) {
    value(static_cast<std::uint64_t>(text.size()));
    bytes_.append(text);
  }
  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::exchange(bytes_, {}); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  // `bytes` outlives it. Error internal, of all: the record is too short.
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, next(sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> values() {
    const auto count = value<std::uint64_t>();
    if (count > left() / sizeof(T)) refuse(count);
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), next(count * sizeof(T)), count * sizeof(T));
    return values;
  }
  std::string text() {
    const auto size = value<std::uint64_t>();
    return std::string(next(size), size);
  }
  std::size_t left() const { return bytes_.size() - at_; }

 private:
  const char* next(std::size_t size) {
    if (size > left()) refuse(size);
    at_ += size;
    return bytes_.data() + at_ - size;
  }
  [[noreturn]] void refuse(std::uint64_t wanted) const {
    fail(ErrorCode::internal, "a record of {} bytes ends at {}, and {} more are read", bytes_.size(), at_, wanted);
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace lockstep
