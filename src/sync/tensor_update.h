// Makes a snapshot's tensor from bytes that the caller has, part by part: applies the changes of every snapshot on the way, and compares each result's
// digest. Nobody needs the tensor whole. Made by SnapshotChain::update.
//   const auto update = chain.update(tensor, digest);   update->next(part, bytes);   update->finish();
// One thread. What next() wrote is the tensor only if finish() says nothing.
#pragma once
#include <list>
#include <optional>
#include <string>

#include "base/running_digest.h"
#include "sync/folder_tensors.h"
#include "sync/tensor_codec.h"

namespace lockstep {

class TensorUpdate {
 public:
  // `store`: its label, for messages.
  TensorUpdate(const TensorShape& shape, std::string store) : shape_(shape), store_(std::move(store)) {}
  // The next change: of a snapshot, with its payload, and the digest of what comes out. Call before next().
  void add(const std::string& snapshot, TensorCodec codec, std::string payload, const std::string& object, const std::string& result);
  std::uint64_t payload_bytes() const { return payload_bytes_; }  // that it holds
  // The next bytes, changed in place; parts as TensorDecoder's. Error corrupt_file, of both: names snapshot, tensor, digests, and what heals it.
  void next(char* bytes, std::size_t size);
  void finish();

 private:
  struct Link {
    std::string snapshot, payload, object, result;
    RunningDigest digest;
    std::optional<TensorDecoder> decoder;
  };
  [[noreturn]] void refuse(const Link& link, const std::string& digest) const;
  const TensorShape shape_;
  const std::string store_;
  std::uint64_t payload_bytes_ = 0;
  std::list<Link> links_;  // in the order in which they are applied
};

}  // namespace lockstep
