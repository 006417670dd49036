// What main.ts asks of a view.
export interface View {
  readonly element: HTMLElement;
  close(): void;    // ends what runs in the background
  themed?(): void;  // light or dark has changed
}
