// The "decoder" of a tokenizer.json, which turns tokens' texts into text: ByteLevel, Replace, ByteFallback, Fuse,
// Strip, Metaspace, or a Sequence.
//   Decoder::Stream s(decoder); for (text : token_texts) s.push(text, out); s.finish(out);
// Works as a stream: parts come out as soon as no later token can change them, always
// whole characters. Decoding a whole text is the same stream, so the two never differ.
// Knows texts, no ids. Thread rule: a Decoder is immutable; a stream belongs to one thread.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Decoder {
 public:
  // corrupt_file or unsupported names the construct.
  static Decoder from_json(const nlohmann::json& json);
  // For rank files.
  static Decoder byte_level();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;
  ~Decoder();

  // What a token adds to the text when others stand on both sides: maybe part of a character.
  std::string token_bytes(std::string_view token) const;

  class Stage;
  class Stream {
   public:
    explicit Stream(const Decoder& decoder);
    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;
    ~Stream();
    // Appends what became certain.
    void push(std::string_view token, std::string& out);
    // The end; the stream is ready for another text.
    void finish(std::string& out);

   private:
    std::vector<std::unique_ptr<Stage>> stages_;
  };

 private:
  Decoder();
  std::vector<std::unique_ptr<const Stage>> stages_;
};

}  // namespace lockstep
