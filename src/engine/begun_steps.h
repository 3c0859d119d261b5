// BegunSteps: steps of one token a sequence that are begun before the last one's outcome is read, so that a device which
// runs ahead has always something to do. What Session::begin() says.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "conclave/session.h"
#include "engine/request_check.h"
#include "engine/step_programs.h"

namespace conclave {

class BegunSteps {
 public:
  // What steps are made of; all of it must outlive them.
  struct Parts {
    Device& device;
    KvCache& kv;
    StepInputs& inputs;
    StepPrograms& programs;
    const Workspace& workspace;
    RequestCheck& check;
  };
  // Of at most `most_sequences` sequences, a power of two.
  BegunSteps(const Parts& parts, std::int64_t most_sequences);

  void begin(std::span<const NextToken> tokens);
  std::span<const std::int32_t> finish();
  void forget();

  std::int64_t most_sequences() const { return most_sequences_; }
  std::size_t under_way() const { return n_under_way_; }
  // Other steps ran: there is nothing that a token could follow.
  void interrupt() { followed_.clear(); }
  // The sequence lost tokens: nothing follows a step that it was part of.
  void interrupt(SequenceId sequence);

 private:
  bool check(std::span<const NextToken> tokens);

  struct Begun {
    std::unique_ptr<Fetch> ids;
    std::size_t n_sequences = 0;
  };

  Parts parts_;
  std::int64_t most_sequences_;
  std::array<Begun, static_cast<std::size_t>(Session::kMostBegun)> begun_;
  std::size_t oldest_ = 0;
  std::size_t n_under_way_ = 0;
  std::vector<SequenceId> followed_;  // the sequences of the step that was begun last
  std::vector<std::int32_t> rows_;    // 0, 1, 2, ...
};

}  // namespace conclave
