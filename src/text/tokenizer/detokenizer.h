// Incremental detokenization: emits text as it becomes certain, never half a character, and all parts together are exactly
// Tokenizer::decode of the whole stream. Thread rule: one stream, one thread.
//   Detokenizer d(tokenizer, true); for (id : ids) send(d.push(id)); send(d.flush());
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

class Detokenizer {
 public:
  // `tokenizer` outlives this object.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special);

  // Tokens that stand before the stream and are not part of its text: a decoder may look back (a space at the very beginning).
  void begin_after(std::span<const std::int32_t> ids);
  // What is certain after this token: maybe nothing, while a character waits for its other bytes, or a run of byte tokens
  // for its end (byte fallback: one broken byte in it changes all of it).
  std::string push(std::int32_t id);
  // The end of the stream: what was held back. The object is ready for another stream.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  Decoder::Stream stream_;
};

}  // namespace lockstep
