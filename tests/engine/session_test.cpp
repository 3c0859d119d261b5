// The same tokens give the same bits, however they are brought to the model; and what cannot be changes nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "engine/random_model.h"

namespace conclave::testing {
namespace {

struct SameBitsCase {
  const char* family;
  DType type;
};
std::vector<SameBitsCase> same_bits_cases() {
  std::vector<SameBitsCase> cases;
  for (const char* family : kFamilies) {
    for (const DType type : {DType::f32, DType::q4_k}) cases.push_back({family, type});
  }
  return cases;
}

class SameBitsTest : public ::testing::TestWithParam<SameBitsCase> {
 protected:
  // One file, and what it gives in one go, for all the tests of a case.
  struct Case {
    explicit Case(const SameBitsCase& of) : file(of.family, of.type) {}
    RandomModel file;
    Rows want;
  };
  static Case& of(const SameBitsCase& parameter) {
    static std::map<std::pair<std::string, DType>, std::unique_ptr<Case>> cases;
    std::unique_ptr<Case>& held = cases[{parameter.family, parameter.type}];
    if (held == nullptr) held = std::make_unique<Case>(parameter);
    return *held;
  }
  void SetUp() override {
    Rows& want = of(GetParam()).want;
    if (want.empty()) want = whole(tokens_);
    want_ = &want;
  }

  Rows whole(const Tokens& tokens, SessionOptions options = {.context = 300}) const {
    Session session(file_.open(), options);
    return all_logits(session, session.create(), tokens);
  }

  const Tokens tokens_ = random_tokens(150);  // three pages
  const RandomModel& file_ = of(GetParam()).file;
  const Rows* want_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Models, SameBitsTest, ::testing::ValuesIn(same_bits_cases()), [](const auto& test) {
  return std::string(test.param.family) + "_" + std::string(dtype_info(test.param.type).name);
});

TEST_P(SameBitsTest, InChunksOneByOneAndThroughANarrowHead) {
  const Rows& want = *want_;
  ASSERT_EQ(want.size(), tokens_.size());
  EXPECT_EQ(whole(tokens_, {.context = 150, .chunk = 7}), want);
  EXPECT_EQ(whole(tokens_, {.context = 1000, .chunk = 64}), want);
  EXPECT_EQ(whole(tokens_, {.context = 300, .logit_rows = 4}), want);
  EXPECT_EQ(whole(tokens_, {.context = 300, .exact_prompts = true}), want);
  Session session(file_.open(), {.context = 300});
  const SequenceId sequence = session.create();
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const auto row = session.extend(sequence, {&tokens_[i], 1});
    ASSERT_EQ(std::vector<float>(row.begin(), row.end()), want[i]) << i;
  }
}

TEST_P(SameBitsTest, OnAnyNumberOfThreads) {
  const Rows& want = *want_;
  for (const int threads : {1, 3, 5}) {
    Session session(file_.open("cpu", threads), {.context = 300});
    EXPECT_EQ(all_logits(session, session.create(), tokens_), want) << threads;
  }
}

TEST_P(SameBitsTest, BesideOtherSequences) {
  const Rows& want = *want_;
  Session session(file_.open(), {.context = 300, .max_sequences = 3, .chunk = 32});
  const SequenceId a = session.create();
  const SequenceId b = session.create();
  const SequenceId c = session.create();
  const Tokens other = random_tokens(150, 77);
  const Rows other_want = whole(other);
  // Steps that mix pieces of prompts with single tokens.
  std::size_t a_done = 0;
  std::size_t c_done = 0;
  for (std::size_t turn = 0; turn < 150; ++turn) {
    const std::size_t a_next = std::min<std::size_t>(a_done + 1 + turn * 7 % 41, tokens_.size());
    std::vector<StepInput> inputs;
    if (a_next > a_done) inputs.push_back({a, std::span(tokens_).subspan(a_done, a_next - a_done), LogitRows::all});
    inputs.push_back({b, std::span(other).subspan(turn, 1), LogitRows::last});
    if (turn == 3) {
      inputs.push_back({c, tokens_, LogitRows::last});
      c_done = tokens_.size();
    }
    session.step(inputs, {.logits = [&](const LogitRow& row) {
                   const std::vector<float> got(row.logits.begin(), row.logits.end());
                   const SequenceId sequence = inputs[row.input].sequence;
                   if (sequence == a) {
                     ASSERT_EQ(got, want[a_done + row.token]);
                   } else if (sequence == b) {
                     ASSERT_EQ(got, other_want[turn]);
                   } else {
                     ASSERT_EQ(row.token, tokens_.size() - 1);
                     ASSERT_EQ(got, want.back());
                   }
                 }});
    a_done = a_next;
  }
  EXPECT_EQ(session.length(a), 150);
  EXPECT_EQ(c_done, 150U);
}

TEST_P(SameBitsTest, InAForkAndAfterACut) {
  const Rows& want = *want_;
  const Tokens other = random_tokens(60, 9);
  Session session(file_.open(), {.context = 300, .max_sequences = 3});
  const SequenceId a = session.create();
  session.extend(a, std::span(tokens_).first(100));
  const SequenceId b = session.fork(a);
  EXPECT_EQ(session.length(b), 100);
  session.extend(a, other);  // a goes another way, in the page that both were in
  EXPECT_EQ(all_logits(session, b, std::span(tokens_).subspan(100)), Rows(want.begin() + 100, want.end()));

  // A fork of a fork, cut into a page that is shared and full in the others.
  const SequenceId c = session.fork(b);
  session.cut(c, 70);
  session.extend(c, other);
  session.cut(b, 70);
  EXPECT_EQ(all_logits(session, b, std::span(tokens_).subspan(70)), Rows(want.begin() + 70, want.end()));
  session.cut(a, 64);
  EXPECT_EQ(all_logits(session, a, std::span(tokens_).subspan(64)), Rows(want.begin() + 64, want.end()));
  session.drop(c);
  EXPECT_EQ(session.create(), c);
}

TEST_P(SameBitsTest, WhileTheRoutingIsTraced) {
  const Rows& want = *want_;
  const Model model = file_.open();
  Session session(model, {.context = 300, .chunk = 64, .logit_rows = 16, .trace_routing = true});
  const StepInput input{.sequence = session.create(), .tokens = tokens_, .logits = LogitRows::last};
  std::vector<std::vector<int>> seen(tokens_.size(), std::vector<int>(kTinyLayers));
  Rows last;
  const bool sums_to_one = std::string(GetParam().family) == "qwen3moe" || std::string(GetParam().family) == "llama";
  session.step({&input, 1},
               {.logits = [&](const LogitRow& row) { last.emplace_back(row.logits.begin(), row.logits.end()); },
                .routing =
                    [&](const RoutingRow& row) {
                      ++seen[row.token][static_cast<std::size_t>(row.layer)];
                      ASSERT_EQ(row.experts.size(), static_cast<std::size_t>(kTinyTopK));
                      ASSERT_NE(row.experts[0], row.experts[1]);
                      ASSERT_GE(row.weights[0], row.weights[1]);
                      for (const std::int32_t e : row.experts) ASSERT_TRUE(e >= 0 && e < kTinyExperts);
                      const float sum = std::accumulate(row.weights.begin(), row.weights.end(), 0.0F);
                      ASSERT_TRUE(!sums_to_one || std::fabs(sum - 1.0F) < 1e-6F) << sum;
                      ASSERT_LE(sum, 1.0F + 1e-6F);
                    }});
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0], want.back());
  for (const auto& layers : seen) EXPECT_EQ(layers, std::vector<int>(kTinyLayers, 1));
}

// Generated tokens of short texts have a program of their own.
TEST(Session, ATextThatBecomesLongKeepsItsBits) {
  const RandomModel file("qwen3moe", DType::f32);
  const Tokens tokens = random_tokens(2070);
  constexpr std::size_t kPrompt = 2035;
  Session session(file.open(), {.context = 2200, .max_sequences = 2});
  const SequenceId one_by_one = session.create();
  session.extend(one_by_one, std::span(tokens).first(kPrompt));
  const Rows want = all_logits(session, session.fork(one_by_one), std::span(tokens).subspan(kPrompt));
  for (std::size_t i = kPrompt; i < tokens.size(); ++i) {
    const auto row = session.extend(one_by_one, {&tokens[i], 1});
    ASSERT_EQ(std::vector<float>(row.begin(), row.end()), want[i - kPrompt]) << i;
  }
}

TEST(Session, EveryTypeOfCacheIsNearTheF32One) {
  const RandomModel file("qwen3moe", DType::f32);
  const Tokens tokens = random_tokens(100);
  const auto with = [&](KvType type) {
    Session session(file.open(), {.context = 100, .kv_type = type});
    return all_logits(session, session.create(), tokens);
  };
  const Rows exact = with(KvType::f32);
  EXPECT_LE(median_error(with(KvType::f16), exact), 1e-6);
  EXPECT_LE(median_error(with(KvType::bf16), exact), 1e-4);
  EXPECT_LE(median_error(with(KvType::q8_0), exact), 1e-3);
  EXPECT_NE(with(KvType::q8_0), exact);
}

class RefusalTest : public ::testing::Test {
 protected:
  RefusalTest() : file_("olmoe", DType::f32), session_(file_.open(), {.context = 20, .max_sequences = 2}) {
    a_ = session_.create();
    before_ = Tokens{1, 2, 3};
    session_.extend(a_, before_);
  }
  // The request is refused with this text, and the sequence goes on as if nothing had happened.
  void refuses(std::vector<StepInput> inputs, const std::string& text) {
    try {
      session_.step(inputs, {.logits = [](const LogitRow&) { FAIL(); }});
      ADD_FAILURE() << "not refused: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
    EXPECT_EQ(session_.length(a_), 3);
  }

  RandomModel file_;
  Session session_;
  SequenceId a_;
  Tokens before_;
};

TEST_F(RefusalTest, WhatCannotBeChangesNothing) {
  const SequenceId b = session_.create();
  const Tokens good{4, 5};
  const Tokens low{4, -1};
  const Tokens high{0, 1, 20};
  const Tokens many(18, 1);
  refuses({{a_, good}, {b, low}}, "token 1 is -1, must be 0 to 19");
  refuses({{a_, good}, {b, high}}, "token 2 is 20, must be 0 to 19");
  refuses({{b, good}, {a_, many}}, "the context is full: 3 tokens and 18 new ones are more than its 20");
  refuses({{b, good}, {a_, Tokens{}}}, "there are no tokens to add to sequence 0");
  refuses({{a_, good}, {b, good}, {a_, good}}, "sequence 0 is named twice in one step");
  refuses({{a_, good}, {7, good}}, "sequence 7 does not exist");
  refuses({{a_, good}, {-1, good}}, "sequence -1 does not exist");
  EXPECT_EQ(session_.length(b), 0);
  EXPECT_THROW(session_.create(), Error);
  EXPECT_THROW(session_.fork(a_), Error);
  EXPECT_THROW(session_.cut(a_, 4), Error);
  EXPECT_THROW(session_.cut(a_, -1), Error);
  session_.drop(b);
  EXPECT_THROW(session_.length(b), Error);
  EXPECT_THROW(session_.drop(b), Error);
  const StepInput input{a_, good};
  EXPECT_THROW(session_.step({&input, 1}, {.routing = [](const RoutingRow&) {}}), Error);

  Session fresh(file_.open(), {.context = 20});
  const SequenceId c = fresh.create();
  fresh.extend(c, before_);
  EXPECT_EQ(all_logits(session_, a_, good), all_logits(fresh, c, good));
}

TEST_F(RefusalTest, TheContextCanBeFilledToTheLastToken) {
  const Tokens rest(17, 1);
  session_.extend(a_, rest);
  EXPECT_EQ(session_.length(a_), 20);
  const Tokens one{1};
  EXPECT_THROW(session_.extend(a_, one), Error);
  session_.cut(a_, 19);
  session_.extend(a_, one);
}

TEST(Session, StopsBetweenChunksWhenToldTo) {
  const RandomModel file("llama", DType::f32);
  Session session(file.open(), {.context = 100, .chunk = 10});
  const SequenceId a = session.create();
  const Tokens tokens = random_tokens(35);
  const StepInput input{a, tokens};
  std::vector<std::int64_t> told;
  session.step({&input, 1}, {.progress = [&](std::int64_t done, std::int64_t total) {
                 EXPECT_EQ(total, 35);
                 told.push_back(done);
                 return done < 20;
               }});
  EXPECT_EQ(told, (std::vector<std::int64_t>{10, 20}));
  EXPECT_EQ(session.length(a), 20);
}

TEST(Session, ProfilesEveryOp) {
  const RandomModel file("qwen2moe", DType::f32);
  Session session(file.open(), {.context = 100});
  const Tokens tokens{1, 2};
  const StepInput input{session.create(), tokens};
  int ffns = 0;
  session.step({&input, 1}, {.profile = [&](const std::string& line) { ffns += line.find("\"moe_ffn\"") < 40; }});
  EXPECT_EQ(ffns, kTinyLayers);
}

TEST(Model, TellsItsFactsAndNamesTheFileItRefuses) {
  const RandomModel file("qwen2moe", DType::f32);
  const ModelFacts facts = file.open("ref").facts();
  EXPECT_EQ(facts.architecture, "qwen2moe");
  EXPECT_EQ(facts.device, "ref");
  EXPECT_EQ(facts.n_vocab, kTinyVocab);
  EXPECT_EQ(facts.n_experts, kTinyExperts);
  EXPECT_THROW(Model::open(file.path(), {.device = "abacus"}), Error);
  EXPECT_THROW(Model::open(file.path(), {.threads = -1}), Error);
  const TempDir folder;
  ModelFixture broken = tiny_model("llama");
  broken.drop_tensor("blk.1.ffn_up_exps.weight");
  broken.write(folder.path() / "broken.gguf");
  try {
    Model::open(folder.path() / "broken.gguf");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("broken.gguf: tensor blk.1.ffn_up_exps.weight"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace conclave::testing
