// BullMQ on Node: the same benchmarks as the Python scripts. Runs in the folder that holds node_modules.
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");

const WARM_UP = 20;
const CHUNK = 1000;
const order = JSON.parse(process.argv[2]);
const { hostname, port } = new URL(order.url);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
const options = order.settings.keep ? {} : { removeOnComplete: true };
// Else it would try again and again, and say so each time.
const giveUp = (error) => {
  console.error(error.message);
  process.exit(1);
};
const queue = new Queue("bench", { connection }).on("error", giveUp);

const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const nanoseconds = () => Number(process.hrtime.bigint());

const insert = async (jobs) => {
  for (let start = 0; start < jobs; start += CHUNK) {
    const size = Math.min(CHUNK, jobs - start);
    await queue.addBulk(Array.from({ length: size }, () => ({ name: "noop", data: {}, opts: options })));
  }
};

const enqueue = (jobs, callers) =>
  Promise.all(
    Array.from({ length: callers }, async () => {
      for (let number = 0; number < jobs / callers; number += 1) await queue.add("noop", {}, options);
    }),
  );

const timed = async (work) => {
  const started = nanoseconds();
  await work();
  return { jobs_per_second: order.jobs / ((nanoseconds() - started) / 1e9) };
};

const work = (handle) =>
  new Worker("bench", async (job) => handle(job.data.sent), {
    connection,
    concurrency: order.settings.concurrency ?? 100,
  }).on("error", giveUp);

const unsettled = async () => Object.values(await queue.getJobCounts("wait", "active")).reduce((a, b) => a + b);

const drain = async () => {
  let count = 0;
  let first = 0;
  await new Promise((done) => {
    work(() => {
      if (count === 0) first = nanoseconds();
      count += 1;
      if (count === order.jobs) done();
    });
  });
  while (await unsettled()) await wait(2);
  return { jobs_per_second: order.jobs / ((nanoseconds() - first) / 1e9) };
};

const latency = async () => {
  const seen = [];
  await new Promise(async (done) => {
    work((sent) => {
      if (sent) seen.push((nanoseconds() - sent) / 1e6);
      if (seen.length === order.jobs) done();
    });
    for (let number = 0; number < order.jobs + WARM_UP; number += 1) {
      await wait(4 + Math.random() * 12);
      await queue.add("stamp", { sent: number < WARM_UP ? 0 : nanoseconds() }, options);
    }
  });
  seen.sort((a, b) => a - b);
  return { p50_ms: seen[Math.floor(seen.length * 0.5)], p99_ms: seen[Math.floor(seen.length * 0.99)] };
};

// One parent with all jobs as its children, from adding them to the result of the parent.
const flow = async () => {
  const producer = new FlowProducer({ connection }).on("error", giveUp);
  const events = new QueueEvents("parents", { connection }).on("error", giveUp);
  await events.waitUntilReady();
  work(() => 1);
  new Worker("parents", async (job) => Object.keys(await job.getChildrenValues()).length, { connection }).on("error", giveUp);
  const finish = async (jobs) => {
    const children = Array.from({ length: jobs }, () => ({ name: "noop", queueName: "bench", data: {} }));
    const { job } = await producer.add({ name: "all", queueName: "parents", data: {}, children });
    const count = await job.waitUntilFinished(events);
    if (count !== jobs) throw new Error(`${count} of ${jobs} children`);
  };
  await finish(WARM_UP);
  return timed(() => finish(order.jobs));
};

const actions = {
  fill: async () => (await insert(order.jobs), {}),
  insert: async () => (await enqueue(WARM_UP, 1), timed(() => insert(order.jobs))),
  enqueue: async () => (await enqueue(WARM_UP, 1), timed(() => enqueue(order.jobs, order.settings.callers ?? 1))),
  drain,
  latency,
  flow,
};

console.log(JSON.stringify(await actions[order.action]()));
process.exit(0);
