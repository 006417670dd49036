// The codec `planes` of snapshots, for tensors of which most elements changed (fp32 after a training step). Each element's step is Rice coded, with a
// parameter that adapts per old exponent; quotients go to one stream of bits, remainders to another. docs/weight-sync.md has the format. Pure
// functions.
//   const std::string payload = encode_planes(kind, old_words, new_words, n);
//   PlanesDecoder decoder(kind, payload);   decoder.next(old_words, n, to);   decoder.finish();
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sync/bit_reader.h"
#include "sync/element.h"

namespace lockstep {

std::string encode_planes(const ElementKind& kind, const void* old_words, const void* new_words, std::int64_t elements);
// As SparseDecoder, for any number of elements at a time. Error corrupt_file.
class PlanesDecoder {
 public:
  PlanesDecoder(const ElementKind& kind, std::string_view payload);
  void next(const void* old_words, std::int64_t count, void* to);
  void finish() const;

 private:
  const ElementKind kind_;
  std::vector<RiceMean> means_;
  BitReader quotients_, remainders_;
  bool fits_ = true;
};

}  // namespace lockstep
