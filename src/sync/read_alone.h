// A base class for read-only stores: every write is refused, with an error that the derived class words.
//   class HttpStore final : public ReadAlone<RemoteStore> { ... [[noreturn]] void refuse() const override; };
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "sync/store.h"

namespace lockstep {

template <class Base>
class ReadAlone : public Base {
 public:
  std::unique_ptr<Store::WriteLock> writing() override { refuse(); }
  std::unique_ptr<Store::Writer> write_object() override { refuse(); }
  std::string put_manifest(const std::string&) override { refuse(); }
  void remove(StoredKind, const std::string&) override { refuse(); }
  bool swap_channel(const std::string&, const std::optional<std::string>&, const std::string&) override { refuse(); }
  bool remove_channel(const std::string&, const std::string&) override { refuse(); }
  void put_record(const std::string&, const std::string&, const std::string&) override { refuse(); }
  void remove_record(const std::string&, const std::string&) override { refuse(); }

 protected:
  template <class... Arguments>
  explicit ReadAlone(Arguments&&... arguments) : Base(std::forward<Arguments>(arguments)...) {}

 private:
  [[noreturn]] virtual void refuse() const = 0;
};

}  // namespace lockstep
