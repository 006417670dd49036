// The bytes of a request's body as protobuf reads them: one block at a time, as they arrive. Internal to tinker/. One thread.
//   ProtoStream stream(source); google::protobuf::io::CodedInputStream in(&stream);
#pragma once
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>
#include <string_view>

#include "base/byte_source.h"

namespace lockstep {

class ProtoStream : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit ProtoStream(ByteSource& source) : source_(source) {}
  bool Next(const void** data, int* size) override {
    if (rest_.empty()) rest_ = source_.next();
    if (rest_.empty()) return false;
    last_ = rest_.substr(0, kMost);
    rest_.remove_prefix(last_.size());
    *data = last_.data();
    *size = static_cast<int>(last_.size());
    count_ += *size;
    return true;
  }
  void BackUp(int count) override {  // gives back the last `count` bytes of Next()
    rest_ = {last_.data() + last_.size() - count, static_cast<std::size_t>(count) + rest_.size()};
    count_ -= count;
  }
  bool Skip(int count) override {
    const void* data = nullptr;
    for (int size = 0; count > 0; count -= size) {
      if (!Next(&data, &size)) return false;
      if (size > count) {
        BackUp(size - count);
        size = count;
      }
    }
    return true;
  }
  int64_t ByteCount() const override { return count_; }

 private:
  static constexpr std::size_t kMost = 1 << 20;
  ByteSource& source_;
  std::string_view rest_, last_;
  std::int64_t count_ = 0;
};

}  // namespace lockstep
