// What a TypeScript program finds in Node.js, without types of its own: any module, and the usual globals.
declare module '*';
declare const require: any;
declare const module: any;
declare const exports: any;
declare const process: any;
declare const Buffer: any;
declare const console: any;
declare const __dirname: string;
declare const __filename: string;
declare function setTimeout(action: (...given: any[]) => void, milliseconds?: number, ...given: any[]): any;
declare function setInterval(action: (...given: any[]) => void, milliseconds?: number, ...given: any[]): any;
declare function setImmediate(action: (...given: any[]) => void, ...given: any[]): any;
declare function clearTimeout(timer: any): void;
declare function clearInterval(timer: any): void;
declare function queueMicrotask(action: () => void): void;
