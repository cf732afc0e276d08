// The host of a script: reads batches of columns, calls the script for each row, and writes columns.
//
// It is evaluated before the script, and keeps for itself what the script must not have.

const read = Deno.stdin.readSync.bind(Deno.stdin);
const write = Deno.stdout.writeSync.bind(Deno.stdout);
const { exit } = Deno;
const { parse, stringify, rawJSON } = JSON;
const { isFinite, isInteger, isSafeInteger } = Number;
const { isArray } = Array;
const { hasOwn } = Object;
const { toISOString } = Date.prototype;
const { toBase64 } = Uint8Array.prototype;
const call = Function.prototype.call.bind(Function.prototype.call);
const test = RegExp.prototype.exec;
const decoder = new TextDecoder();
const encoder = new TextEncoder();
const print = console.error.bind(console);

// Standard output is the way back: what a script prints goes to standard error.
for (const name of ["log", "info", "debug", "dir", "dirxml", "table", "group", "groupCollapsed", "count", "timeEnd", "timeLog"]) {
  console[name] = print;
}
for (const name of ["Deno", "process", "Worker", "close", "alert", "confirm", "prompt", "caches", "localStorage", "sessionStorage"]) {
  delete globalThis[name];
}
const listen = globalThis.addEventListener.bind(globalThis);

const READY = 82, PART = 80, DONE = 68, ROW = 78; // R, P, D, N
const PART_ROWS = 20_000;
const SHOWN = 60;
const LONGEST_MESSAGE = 500;

class Misfit extends Error {}

function shown(value) {
  switch (typeof value) {
    case "string":
      return stringify(value.length > SHOWN ? value.slice(0, SHOWN) + "..." : value);
    case "bigint":
      return `${value}n`;
    case "object":
      return value === null ? "null" : isArray(value) ? "an array" : value instanceof Date ? "a Date" : "an object";
    case "function":
    case "symbol":
      return `a ${typeof value}`;
    default:
      return Object.is(value, -0) ? "-0" : `${value}`;
  }
}

function misfit(path, type, value, hint = "") {
  return new Misfit(`column '${path}' is ${type} and got ${shown(value)}${hint}`);
}

// A function that takes a value of the script and returns what is written for it, by the type of its column.
function writer(type, path) {
  const { kind, name } = type;
  switch (kind) {
    case "boolean":
      return (value) => {
        if (typeof value === "boolean") return value;
        throw misfit(path, name, value);
      };
    case "integer": {
      const { low, high } = type;
      return (value) => {
        if (isInteger(value) && value >= low && value <= high) return value === 0 ? 0 : value;
        if (typeof value === "bigint" && value >= low && value <= high) return Number(value);
        throw misfit(path, name, value);
      };
    }
    case "bigint":
      return (value) => {
        if (isSafeInteger(value)) return value === 0 ? 0 : value;
        if (typeof value === "bigint" && BigInt.asIntN(64, value) === value) return rawJSON(`${value}`);
        throw misfit(path, name, value, isInteger(value) ? ", which a Number does not hold exactly: return a BigInt" : "");
      };
    case "float":
      return (value) => {
        if (typeof value === "bigint") value = Number(value);
        if (typeof value !== "number") throw misfit(path, name, value);
        return isFinite(value) && (value !== 0 || 1 / value > 0) ? value : Object.is(value, -0) ? "-0" : `${value}`;
      };
    case "decimal":
      return (value) => {
        if (typeof value === "string" || typeof value === "bigint" || isFinite(value)) return `${value}`;
        throw misfit(path, name, value);
      };
    case "string":
      return (value) => {
        if (typeof value === "string") return value.isWellFormed() ? value : value.toWellFormed();
        throw misfit(path, name, value, typeof value === "object" ? ": JSON.stringify makes text of it" : ": String(...) makes text of it");
      };
    case "operation":
      return (value) => {
        if (value === "i" || value === "u" || value === "d") return value;
        throw new Misfit(`column '${path}' is 'i', 'u' or 'd' and got ${shown(value)}`);
      };
    case "binary":
      return (value) => {
        if (typeof value === "string") return value;
        if (value instanceof Uint8Array) return call(toBase64, value);
        throw misfit(path, name, value, ": return base64 or a Uint8Array");
      };
    case "date":
    case "timestamp":
    case "timestamp_ntz":
      return (value) => {
        if (typeof value === "string") return value;
        if (!(value instanceof Date)) throw misfit(path, name, value, typeof value === "number" ? ": new Date(milliseconds) makes a time of it" : "");
        const text = call(toISOString, value);
        return kind === "date" ? text.slice(0, text.indexOf("T")) : kind === "timestamp" ? text : text.slice(0, -1);
      };
    case "array": {
      const item = writer(type.item, `${path}[]`);
      return (value) => {
        if (ArrayBuffer.isView(value) && !(value instanceof DataView)) value = Array.from(value);
        if (!isArray(value)) throw misfit(path, name, value);
        const items = new Array(value.length);
        for (let at = 0; at < value.length; at++) items[at] = value[at] === undefined || value[at] === null ? null : item(value[at]);
        return items;
      };
    }
    case "map": {
      const key = writer(type.key, `${path} (key)`);
      const item = writer(type.item, `${path}[]`);
      const parsed = keyParser(type.key);
      return (value) => {
        if (typeof value !== "object" || isArray(value)) throw misfit(path, name, value);
        const pairs = value instanceof Map
          ? Array.from(value)
          : Object.keys(value).map((text) => [parsed(text), value[text]]);
        return pairs.map(([left, right]) => [key(left), right === undefined || right === null ? null : item(right)]);
      };
    }
    case "struct": {
      const fields = type.fields.map(([field, inner]) => [field, writer(inner, `${path}.${field}`)]);
      const known = new Set(type.fields.map(([field]) => field));
      return (value) => {
        if (typeof value !== "object" || isArray(value)) throw misfit(path, name, value);
        for (const field in value) {
          if (!known.has(field) && hasOwn(value, field) && value[field] !== undefined) {
            throw new Misfit(`column '${path}' has no field '${field}'`);
          }
        }
        return fields.map(([field, convert]) => value[field] === undefined || value[field] === null ? null : convert(value[field]));
      };
    }
    default: // void
      return (value) => {
        throw misfit(path, name, value);
      };
  }
}

// Fields of an object have texts as names: what the keys of a map are that such an object stands for.
function keyParser(type) {
  switch (type.kind) {
    case "boolean":
      return (text) => text === "true" ? true : text === "false" ? false : text;
    case "integer":
    case "float":
      return (text) => text.trim() === "" || isNaN(text) && text !== "NaN" ? text : Number(text);
    case "bigint":
      return (text) => {
        try {
          return BigInt(text);
        } catch {
          return text;
        }
      };
    default:
      return (text) => text;
  }
}

// A function that makes the value of the script from what was read, for what JSON has no number for.
function reader(type) {
  switch (type.kind) {
    case "bigint":
      return (value) => value === null ? null : typeof value === "string" ? BigInt(value) : value;
    case "float":
      return (value) => value === null ? null : Number(value);
    case "array": {
      const item = reader(type.item);
      return (value) => value === null ? null : value.map(item);
    }
    case "map": {
      const item = reader(type.item);
      return (value) => {
        for (const key in value) value[key] = item(value[key]);
        return value;
      };
    }
    case "struct": {
      const fields = type.fields.map(([field, inner]) => [field, reader(inner)]);
      return (value) => {
        if (value !== null) for (const [field, convert] of fields) value[field] = convert(value[field]);
        return value;
      };
    }
    default:
      return (value) => value;
  }
}

export function writers(columns) {
  return columns.map(([name, type]) => writer(type, name));
}

export function unknownField(value, names) {
  for (const field in value) {
    if (!names.has(field) && hasOwn(value, field) && value[field] !== undefined) {
      throw new Misfit(`no column '${field}' in the schema`);
    }
  }
}

function fill(buffer) {
  for (let at = 0; at < buffer.length;) {
    const count = read(buffer.subarray(at));
    if (count === null) return false;
    at += count;
  }
  return true;
}

function send(kind, text) {
  const body = encoder.encode(text);
  const head = new Uint8Array(5);
  head[0] = kind;
  new DataView(head.buffer).setUint32(1, body.length);
  for (const bytes of [head, body]) {
    for (let at = 0; at < bytes.length;) at += write(bytes.subarray(at));
  }
}

// What is wrong with a row: the text of the error, and its place in the script.
function described(error, place) {
  if (error instanceof Misfit) return [error.message, null];
  let text, stack;
  try {
    text = error instanceof Error ? `${error.name}: ${error.message}` : `thrown: ${typeof error === "string" ? error : stringify(error) ?? shown(error)}`;
    stack = error instanceof Error ? `${error.stack}` : "";
  } catch {
    text = "an error that cannot be shown";
    stack = "";
  }
  const match = call(test, place, stack);
  return [text.slice(0, LONGEST_MESSAGE), match === null ? null : match[1]];
}

// `setUp(columns, out)` returns [row(i), add(value, at)]: the row at a place, and what puts an object of the script at a place of the columns in `out`.
export function serve({ invoke, file, types, width, setUp }) {
  const place = new RegExp(`/${file.replaceAll(".", "[.]")}:(\\d+:\\d+)`);
  const readers = types.map(reader);
  if (typeof invoke !== "function") throw new TypeError("invoke is not a function");
  send(READY, "");
  // A promise that nobody waits for does not end the process.
  listen("unhandledrejection", (event) => event.preventDefault());

  function batch(message) {
    const { columns, count, revive, stop, announce } = message;
    for (const index of revive) columns[index] = columns[index].map(readers[index]);
    const out = Array.from({ length: width }, () => []);
    const { row, add } = setUp(columns, out);
    let rows = [];
    let size = 0;
    const errors = [];

    function collect(value, index) {
      if (value === null || value === undefined) return;
      if (typeof value !== "object") throw new Misfit(`invoke returned ${shown(value)}: return an object, an array of objects or null`);
      if (!isArray(value)) {
        add(value, size);
        rows[size++] = index;
        return;
      }
      for (let at = 0; at < value.length; at++) {
        const one = value[at];
        if (one === null || one === undefined) continue;
        if (typeof one !== "object" || isArray(one)) throw new Misfit(`invoke returned an array with ${shown(one)}: return an array of objects`);
        add(one, size);
        rows[size++] = index;
      }
    }

    function failed(index, error, start) {
      size = start;
      const [text, where] = described(error, place);
      errors.push([index, text, where === null ? null : `${file}:${where}`]);
    }

    function flush(from, to) {
      if (from >= to) return;
      let text;
      try {
        text = stringify({ rows: rows.slice(from, to), columns: out.map((column) => column.slice(from, to)) });
      } catch (error) { // a text is longer than one can be
        if (to - from === 1) {
          errors.push([rows[from], described(error, place)[0], null]);
          return;
        }
        const middle = (from + to) >> 1;
        flush(from, middle);
        flush(middle, to);
        return;
      }
      send(PART, text);
    }

    function part() {
      flush(0, size);
      size = 0;
      rows = [];
      for (const column of out) column.length = 0;
    }

    // Returns the place of the first row whose result is still to come, with that result.
    function run(from) {
      for (let index = from; index < count; index++) {
        const start = size;
        try {
          if (announce) send(ROW, `${index}`);
          const value = invoke(row(index));
          if (value instanceof Promise) return [index, value];
          collect(value, index);
        } catch (error) {
          failed(index, error, start);
          if (stop) break;
        }
        if (size >= PART_ROWS) part();
      }
      return null;
    }

    async function rest(index, pending) {
      for (;;) {
        const start = size;
        try {
          collect(await pending, index);
        } catch (error) {
          failed(index, error, start);
          if (stop) return;
        }
        if (size >= PART_ROWS) part();
        const next = run(index + 1);
        if (next === null || (stop && errors.length)) return;
        [index, pending] = next;
      }
    }

    function end() {
      part();
      send(DONE, stringify({ errors }));
    }

    const pending = run(0);
    if (pending === null) return end();
    return rest(...pending).then(end);
  }

  const head = new Uint8Array(4);
  async function loop() {
    while (fill(head)) {
      const body = new Uint8Array(new DataView(head.buffer).getUint32(0));
      if (!fill(body)) return;
      const pending = batch(parse(decoder.decode(body)));
      if (pending !== undefined) await pending;
    }
  }
  // Timers of the script would keep the process.
  return loop().then(() => exit(0));
}
