// A registry of named records by owner, each in the store before it is visible, so that a restarted server has them again. Owners do not see each
// other's. T has owner, name and created, a to_json and a from_json (TrainingJson). Any thread.
//   StoredRecords<Deployment> deployments(store, "deployment", KeyLimit(1024, 50)); deployments.find(owner, name);
//   deployments.change(owner, name, [](Deployment& one) { one.identity = "v2"; });
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/guarded.h"
#include "host/key_limit.h"
#include "host/record_writer.h"
#include "host/training_records.h"
#include "store/training_store.h"

namespace lockstep {

template <class T>
class StoredRecords {
 public:
  // `kind`: the kind of documents in the store, and the word for one in errors.
  StoredRecords(std::shared_ptr<TrainingStore> store, std::string kind, const KeyLimit& limit)
      : store_(std::move(store)), kind_(std::move(kind)), limit_(limit) {
    const auto records = records_.lock();
    store_->each(kind_, [&](const std::string&, const std::string& document) {
      T record = read_own_json(document).template get<T>();
      (*records)[{record.owner, record.name}] = std::move(record);
    });
  }

  std::optional<T> find(const std::string& owner, const std::string& name) const {
    const auto records = records_.lock();
    const auto found = records->find({owner, name});
    return found == records->end() ? std::nullopt : std::optional(found->second);
  }
  // Oldest first.
  std::vector<T> all(const std::string& owner) const {
    const auto records = records_.lock();
    std::vector<T> out;
    for (const auto& [key, record] : *records)
      if (record.owner == owner) out.push_back(record);
    std::stable_sort(out.begin(), out.end(), [](const T& a, const T& b) { return a.created < b.created; });
    return out;
  }
  void each(const std::function<void(const T&)>& visit) const {
    const auto records = records_.lock();
    for (const auto& [key, record] : *records) visit(record);
  }
  // Changes a record, after making it if it is missing, and returns it. If `change` throws, nothing is changed. Errors: resource_exhausted; the store's.
  T change(const std::string& owner, const std::string& name, const std::function<void(T&)>& change) { return changed(owner, name, change, true).value(); }
  // The same of one that is there, found in the moment of its change; there is none: nothing is made, and nothing returned.
  std::optional<T> change_existing(const std::string& owner, const std::string& name, const std::function<void(T&)>& change) {
    return changed(owner, name, change, false);
  }
  bool remove(const std::string& owner, const std::string& name) {
    bool removed = false;
    writer_.change([&] {
      store_->remove(kind_, owner + " " + name);
      const auto records = records_.lock();
      removed = records->erase({owner, name}) > 0;
    });
    return removed;
  }

 private:
  std::optional<T> changed(const std::string& owner, const std::string& name, const std::function<void(T&)>& change, bool makes) {
    std::optional<T> record;
    writer_.change([&] {
      record = find(owner, name);
      if (!record) {
        if (!makes) return;
        check_room(owner);
        record.emplace();
        record->created = unix_now();
      }
      record->owner = owner;
      record->name = name;
      change(*record);
      store_->put(kind_, owner + " " + name, to_json(*record).dump());
      const auto records = records_.lock();
      (*records)[{owner, name}] = *record;
    });
    return record;
  }
  void check_room(const std::string& owner) const {
    const auto records = records_.lock();
    const auto begin = records->lower_bound({owner, {}});
    const auto own = std::distance(begin, std::find_if(begin, records->end(), [&](const auto& one) { return one.first.first != owner; }));
    limit_.check_room(static_cast<std::int64_t>(records->size()), own, "records of kind " + kind_);
  }

  const std::shared_ptr<TrainingStore> store_;
  const std::string kind_;
  const KeyLimit limit_;
  RecordWriter writer_;  // the records' lock is not held while it waits for the disk
  Guarded<std::map<std::pair<std::string, std::string>, T>> records_;
};

}  // namespace lockstep
