// Reads protobuf field by field from bytes as they arrive, so that a message that claims a large size is never held whole. Internal to tinker/.
//   ProtoReader reader(source, "Message"); while (reader.field()) if (reader.is(1, ProtoReader::bytes)) reader.read(text); else reader.skip();
#pragma once
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <string>
#include <vector>

#include "api/tinker/proto_stream.h"
#include "base/client_work.h"
#include "base/error.h"

namespace lockstep {

class ProtoReader {
 public:
  // Protobuf's wire types.
  static constexpr int varint = 0, fixed64 = 1, bytes = 2;

  // `name`: of the message, for the only error: "the body is no NAME".
  ProtoReader(ByteSource& source, std::string name) : name_(std::move(name)), stream_(source), in_(&stream_) { in_.SetTotalBytesLimit(INT32_MAX); }

  // Goes to the next field of the current message; false: there is none.
  bool field() {
    ClientWork::check();
    tag_ = in_.ReadTag();
    if (tag_ == 0 && !in_.ConsumedEntireMessage()) broken();
    return tag_ != 0;
  }
  bool is(int number, int wire) const { return tag_ == static_cast<std::uint32_t>(number << 3 | wire); }
  int number_of_field() const { return static_cast<int>(tag_ >> 3); }
  void skip() { require(google::protobuf::internal::WireFormatLite::SkipField(&in_, tag_)); }

  std::uint64_t number() {
    std::uint64_t value = 0;
    require(in_.ReadVarint64(&value));
    return value;
  }
  std::uint64_t word() {
    std::uint64_t value = 0;
    require(in_.ReadLittleEndian64(&value));
    return value;
  }
  // Reads bytes; memory grows with those that arrive, whatever length the message claims.
  void read(std::string& into) {
    constexpr std::size_t kStep = 64 << 10;
    into.clear();
    for (std::size_t left = length(); left > 0;) {
      const std::size_t step = std::min(left, std::max(kStep, into.size())), before = into.size();
      ClientWork::take(step);
      into.resize(before + step);
      require(in_.ReadRaw(into.data() + before, static_cast<int>(step)));
      left -= step;
    }
  }
  // A nested message: calls read(), which reads its fields.
  template <class Read>
  void message(const Read& read) {
    const auto outer = enter();
    while (field()) read();
    require(in_.BytesUntilLimit() == 0);
    in_.PopLimit(outer);
  }
  // A packed field: take() gets its numbers one by one.
  template <class Take>
  void packed(const Take& take) {
    const auto outer = enter();
    while (in_.BytesUntilLimit() > 0) take(number());
    in_.PopLimit(outer);
  }
  [[noreturn]] void broken() const { fail(ErrorCode::invalid_argument, "the body is no {}", name_); }

 private:
  void require(bool right) const {
    if (!right) broken();
  }
  // Enters a nested message, past whose end nothing is read.
  google::protobuf::io::CodedInputStream::Limit enter() {
    const std::size_t inner = length();
    const int left = in_.BytesUntilLimit();  // -1: no end is known
    require(left < 0 || inner <= static_cast<std::size_t>(left));
    return in_.PushLimit(static_cast<int>(inner));
  }
  std::size_t length() {
    std::uint32_t value = 0;
    require(in_.ReadVarint32(&value) && value <= INT32_MAX);
    return value;
  }

  const std::string name_;
  ProtoStream stream_;
  google::protobuf::io::CodedInputStream in_;
  std::uint32_t tag_ = 0;
};

}  // namespace lockstep
