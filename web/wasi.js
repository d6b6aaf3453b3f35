// The system under the module: WASI preview 1 over files in memory, one folder deep or more.
// Everything that writes goes nowhere; what is missing answers ENOSYS.
"use strict";

class Wasi {
  static OK = 0; static BADF = 8; static NOENT = 44; static NOSYS = 52; static NOTDIR = 54; static PREOPEN = 3;
  static DIRECTORY = 3; static REGULAR = 4;

  constructor() {
    this.files = new Map(); // "model/config.json" -> Uint8Array
    this.open = new Map([[Wasi.PREOPEN, { path: "", at: 0 }]]);
    this.next = Wasi.PREOPEN + 1;
    this.imports = new Proxy({}, { get: (_, name) => this[name] ? this[name].bind(this) : () => Wasi.NOSYS });
  }

  get view() { return new DataView(this.memory.buffer); }
  bytes(at, size) { return new Uint8Array(this.memory.buffer, at, size); }
  text(at, size) { return new TextDecoder().decode(this.bytes(at, size).slice()); }

  static clean(path) { return path.split("/").filter(part => part && part !== ".").join("/"); }
  kind(path) {
    if (this.files.has(path)) return Wasi.REGULAR;
    const prefix = path ? path + "/" : "";
    return path === "" || [...this.files.keys()].some(name => name.startsWith(prefix)) ? Wasi.DIRECTORY : 0;
  }
  size(path) { return this.files.get(path)?.length ?? 0; }

  // Copies from a file to the buffers of a read; returns the number of bytes.
  copy(file, at, iovs, count) {
    let done = 0;
    for (let i = 0; i < count; i++) {
      const to = this.view.getUint32(iovs + 8 * i, true), size = this.view.getUint32(iovs + 8 * i + 4, true);
      const part = file.subarray(at + done, at + done + size);
      this.bytes(to, part.length).set(part);
      done += part.length;
    }
    return done;
  }

  stat(path, out) {
    this.bytes(out, 64).fill(0);
    this.view.setBigUint64(out + 8, BigInt(1 + [...this.files.keys()].indexOf(path)), true);
    this.view.setUint8(out + 16, this.kind(path));
    this.view.setBigUint64(out + 24, 1n, true);
    this.view.setBigUint64(out + 32, BigInt(this.size(path)), true);
    return Wasi.OK;
  }

  // ---- The calls -------------------------------------------------------------------------------

  clock_time_get(id, _precision, out) {
    const ms = id === 0 ? Date.now() : performance.now();
    this.view.setBigUint64(out, BigInt(Math.round(ms * 1e6)), true);
    return Wasi.OK;
  }
  environ_sizes_get(count, size) { this.view.setUint32(count, 0, true); this.view.setUint32(size, 0, true); return Wasi.OK; }
  environ_get() { return Wasi.OK; }
  proc_exit(code) { throw new Error(`the module ended with code ${code}`); }

  fd_prestat_get(fd, out) {
    if (fd !== Wasi.PREOPEN) return Wasi.BADF;
    this.view.setUint32(out, 0, true);
    this.view.setUint32(out + 4, 1, true);
    return Wasi.OK;
  }
  fd_prestat_dir_name(_fd, path) { this.bytes(path, 1)[0] = 47; return Wasi.OK; }

  path_open(fd, _flags, path, length, _open, _rights, _inheriting, _fdflags, out) {
    const base = this.open.get(fd);
    if (!base) return Wasi.BADF;
    const full = Wasi.clean(base.path + "/" + this.text(path, length));
    if (!this.kind(full)) return Wasi.NOENT;
    this.open.set(this.next, { path: full, at: 0 });
    this.view.setUint32(out, this.next++, true);
    return Wasi.OK;
  }
  path_filestat_get(fd, _flags, path, length, out) {
    const full = Wasi.clean(this.open.get(fd).path + "/" + this.text(path, length));
    return this.kind(full) ? this.stat(full, out) : Wasi.NOENT;
  }
  fd_filestat_get(fd, out) { return this.open.has(fd) ? this.stat(this.open.get(fd).path, out) : Wasi.BADF; }
  fd_fdstat_get(fd, out) {
    if (!this.open.has(fd)) return Wasi.BADF;
    this.bytes(out, 24).fill(0);
    this.view.setUint8(out, this.kind(this.open.get(fd).path));
    this.bytes(out + 8, 16).fill(255); // all rights
    return Wasi.OK;
  }
  fd_fdstat_set_flags() { return Wasi.OK; }
  fd_close(fd) { return this.open.delete(fd) ? Wasi.OK : Wasi.BADF; }

  fd_read(fd, iovs, count, out) {
    const file = this.open.get(fd);
    if (!file || !this.files.has(file.path)) return Wasi.BADF;
    const done = this.copy(this.files.get(file.path), file.at, iovs, count);
    file.at += done;
    this.view.setUint32(out, done, true);
    return Wasi.OK;
  }
  fd_pread(fd, iovs, count, at, out) {
    const file = this.open.get(fd);
    if (!file || !this.files.has(file.path)) return Wasi.BADF;
    this.view.setUint32(out, this.copy(this.files.get(file.path), Number(at), iovs, count), true);
    return Wasi.OK;
  }
  fd_seek(fd, offset, whence, out) {
    const file = this.open.get(fd);
    if (!file) return Wasi.BADF;
    file.at = Number(offset) + (whence === 1 ? file.at : whence === 2 ? this.size(file.path) : 0);
    this.view.setBigUint64(out, BigInt(file.at), true);
    return Wasi.OK;
  }
  fd_write(_fd, iovs, count, out) {
    let done = 0;
    for (let i = 0; i < count; i++) done += this.view.getUint32(iovs + 8 * i + 4, true);
    this.view.setUint32(out, done, true);
    return Wasi.OK;
  }
}
