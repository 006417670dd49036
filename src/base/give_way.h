// Lets copies and file operations give way to more urgent work (base/pause_point.h) between blocks, on the thread that does them. The caller must
// hold no lock that the urgent work takes. On a thread without a pause point it costs nothing.
//   each_block(data, bytes, [&](const char* block, std::size_t size) { hash.update(block, size); give_way(); });
#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <future>
#include <vector>

#include "base/pause_point.h"

namespace lockstep {

// What give_way() calls on this thread; null, as on most threads: nothing.
inline thread_local PausePoint* thread_pause_point = nullptr;

inline void give_way() {
  if (thread_pause_point) thread_pause_point->pause();
}

// What is copied, hashed, read or written between two calls of give_way(): about a millisecond.
inline constexpr std::size_t kBlockToGiveWay = std::size_t{1} << 20;

// In a loop over many small elements: after each 65,536 of them, about a millisecond.
inline void give_way_at(std::size_t element) {
  constexpr std::size_t kElements = std::size_t{1} << 16;
  if (element % kElements == kElements - 1) give_way();
}

template <class F>
void each_block(const void* data, std::size_t bytes, const F& f) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const std::size_t size = std::min(bytes, kBlockToGiveWay);
    f(next, size);
    next += size;
    bytes -= size;
  }
}

// Zeros at the end of `values` until it has `size`. The system zeroes memory when it is first written to: a hundred megabytes take some 30 ms.
template <class T>
void grow_with_zeros(std::vector<T>& values, std::size_t size) {
  constexpr std::size_t kStep = kBlockToGiveWay / sizeof(T);
  values.reserve(size);
  while (values.size() < size) {
    values.resize(size - values.size() < kStep ? size : values.size() + kStep);
    give_way();
  }
}

// So many of one value, and a copy, in such steps.
template <class T>
std::vector<T> filled_in_parts(std::size_t size, T value) {
  constexpr std::size_t kStep = kBlockToGiveWay / sizeof(T);
  std::vector<T> values;
  values.reserve(size);
  while (values.size() < size) {
    values.resize(std::min(size, values.size() + kStep), value);
    give_way();
  }
  return values;
}

template <class T>
std::vector<T> copied_in_parts(const std::vector<T>& from) {
  constexpr std::size_t kStep = kBlockToGiveWay / sizeof(T);
  std::vector<T> values;
  values.reserve(from.size());
  while (values.size() < from.size()) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(values.size());
    values.insert(values.end(), begin, begin + static_cast<std::ptrdiff_t>(std::min(from.size() - values.size(), kStep)));
    give_way();
  }
  return values;
}

// Frees them one after the other: the system takes back half a gigabyte of small pages in some 30 ms.
template <class T>
void free_in_parts(std::vector<std::vector<T>>& all) {
  for (std::vector<T>& one : all) {
    std::vector<T>().swap(one);
    give_way();
  }
}

// Runs `waits`, which waits for a disk and cannot be divided. If this thread has a pause point, `waits` gets a thread of its own while this one gives
// way. Rethrows its error.
template <class F>
void give_way_during(const F& waits) {
  if (!thread_pause_point) return waits();
  std::future<void> done = std::async(std::launch::async, waits);
  do give_way();  // once at least, however fast the disk is
  while (done.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready);
  done.get();
}

}  // namespace lockstep
