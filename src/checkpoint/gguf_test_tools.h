// For tests: GGUF files built in memory, right or wrong ones.
//   GgufBytes file; file.text("general.architecture", "llama"); file.tensor("output_norm.weight", {4}, 0, floats({1, 2, 3, 4})); file.bytes();
#pragma once
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

template <class T>
std::string raw_bytes(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}
inline std::string raw_text(std::string_view text) { return raw_bytes(std::uint64_t{text.size()}) + std::string(text); }
inline std::string raw_floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

class GgufBytes {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;
  std::string data;  // of the tensors

  // A key with the bytes of its value; types are the format's numbers.
  void key(std::string_view name, std::uint32_t type, const std::string& value) {
    keys_ += raw_text(name) + raw_bytes(type) + value;
    ++key_count_;
  }
  void u32(std::string_view name, std::uint32_t value) { key(name, 4, raw_bytes(value)); }
  void f32(std::string_view name, float value) { key(name, 6, raw_bytes(value)); }
  void flag(std::string_view name, bool value) { key(name, 7, std::string(1, value ? '\1' : '\0')); }
  void text(std::string_view name, std::string_view value) { key(name, 8, raw_text(value)); }
  void texts(std::string_view name, const std::vector<std::string>& values) {
    std::string list = raw_bytes(std::uint32_t{8}) + raw_bytes(std::uint64_t{values.size()});
    for (const std::string& value : values) list += raw_text(value);
    key(name, 9, list);
  }
  template <class T>
  void numbers(std::string_view name, std::uint32_t type, const std::vector<T>& values) {
    std::string list = raw_bytes(type) + raw_bytes(std::uint64_t{values.size()});
    for (const T value : values) list += raw_bytes(value);
    key(name, 9, list);
  }
  // `shape` outermost first. `values` begin at the next multiple of the alignment.
  void tensor(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type, const std::string& values) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    tensor_at(name, shape, type, data.size());
    data += values;
  }
  void tensor_at(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type, std::uint64_t offset) {
    tensors_ += raw_text(name) + raw_bytes(static_cast<std::uint32_t>(shape.size()));
    for (std::size_t i = shape.size(); i-- > 0;) tensors_ += raw_bytes(shape[i]);
    tensors_ += raw_bytes(type) + raw_bytes(offset);
    ++tensor_count_;
  }
  std::string header() const { return "GGUF" + raw_bytes(version) + raw_bytes(tensor_count_) + raw_bytes(key_count_) + keys_ + tensors_; }
  std::string bytes() const {
    std::string all = header();
    all.resize((all.size() + alignment - 1) / alignment * alignment);
    return all + data;
  }

 private:
  std::string keys_, tensors_;
  std::uint64_t key_count_ = 0, tensor_count_ = 0;
};

}  // namespace lockstep
